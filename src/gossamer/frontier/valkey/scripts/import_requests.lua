#!lua
-- Enter a part of a crawl that was exported from another frontier: requests that wait, that failed and are kept, that
-- are done, and the fingerprints of all. (Run: one life of a crawl, from its first request to its end. Token: 16
-- characters that stand for a crawl. Terms: the options of one submission. Entry: a packed request, see entries.lua.)
-- Must hold: the number of the line is compared and stored in the call that carries it out (field `import` of c:{token}),
-- so that a repeated import does nothing twice.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 single: 1 where there is one shard
--       7 crawl (msgpack)  8 digest of the terms  9 limits (msgpack) and terms (opaque), or ""
--       10 version at which the home shard confirmed the run just now, else 0  11 number of the line
--       12 kind, then what it names (msgpack):
--       seen     { fingerprints as text }, and how many of them are counted on another shard
--       queue    { spider, domain, priority, entry, ... }, the oldest first
--       later    { spider, domain, priority, entry, ms from now, ... }
--       failed   { counter, spider, domain, priority, entry, ... }
--       counts   { field of c:{token}, count, ... }; pages fetched, as counted by the page budget
--       pages    { domain, pages fetched there, ... }
-- Returns { "closed" } when the run is over, { "purging" } when the queues of an earlier run have to be purged first, or
--         { "ok" }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, egresses, ending, failed:{token}, groups, later, n, off:{pool}|{spider}, old, opened,
--         per-egress:{pool}|{spider}, policy, purge, q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, s:{token}:{generation}:{bucket}, t:{token}, w:{scope}, wait:{pool},
--         x:{domain}, z:{token}
-- transition: new -> queued on add
-- transition: new -> later on later_before
-- transition: new -> fetched on fetched_before
-- transition: new -> failed on failed_before
-- transition: new -> dropped on dropped_before
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include mark_seen
-- include queues
-- include queue_later
-- include enter_run
-- include failures
local addition = {
  token = ARGV[3], run = tonumber(ARGV[4]), generation = ARGV[5], single = ARGV[6], packed_crawl = ARGV[7],
  digest = ARGV[8], packed_terms = ARGV[9], confirmed = tonumber(ARGV[10]), stopped = "", headers = {},
}
local crawl, refusal = crawl_for(addition)
if not crawl then
  return refusal
end
local line, kind, data = tonumber(ARGV[11]), ARGV[12], cmsgpack.unpack(ARGV[13])
if line <= tonumber(redis.call("HGET", crawl.key, "import") or 0) then
  return { "ok" }
end
local number = addition.packed_terms ~= "" and keep_terms(crawl, addition)

-- Returns an entry with the number of its terms on this shard, the last three bytes of its header.
local function numbered(entry)
  return string.sub(entry, 1, 4) .. string.char(math.floor(number / 65536), math.floor(number / 256) % 256,
    number % 256) .. string.sub(entry, 8)
end

-- Counts requests as added.
local function count_added(spider, count)
  crawl.added = crawl.added + count
  count_crawl(crawl.token, "a:" .. spider, count)
end

local enter = {}

function enter.seen()
  for _, fingerprint in ipairs(data[1]) do
    mark_seen(crawl, fingerprint)
  end
  grow_seen(crawl)
  count_crawl(crawl.token, "double", data[2])
end

function enter.queue()
  local spider, domain, priority = unpack(data, 1, 3)
  for i = 4, #data do
    data[i] = numbered(data[i])
  end
  count_added(spider, #data - 3)
  enqueue(crawl, spider, domain, priority, false, unpack(data, 4))
end

function enter.later()
  local spider, domain, priority = unpack(data, 1, 3)
  for i = 4, #data, 2 do
    count_added(spider, 1)
    queue_later(crawl, { priority, spider, domain, numbered(data[i]) }, now + data[i + 1])
  end
end

function enter.failed()
  local counter, spider, domain, priority = unpack(data, 1, 4)
  for i = 5, #data do
    count_added(spider, 1)
    count_done(crawl, counter, 1)
    keep_failed(crawl, counter, { priority, spider, domain, numbered(data[i]) })
  end
end

function enter.counts()
  local fields, pages = data[1], data[2]
  for i = 1, #fields, 2 do
    local letter, spider = string.match(fields[i], "^(%a):([^:]+)")
    if letter == "f" or letter == "F" or letter == "D" then
      count_added(spider, fields[i + 1])
      count_done(crawl, fields[i], fields[i + 1])
    else
      count_crawl(crawl.token, fields[i], fields[i + 1])
    end
  end
  if crawl.max_pages then
    count_crawl(crawl.token, "Y", pages)
    count_crawl(crawl.token, "R", pages)
    if crawl.quota < pages then -- its own pages count in the budget that shards share
      redis.call("HSET", crawl.key, "Q", pages)
    end
  end
end

function enter.pages()
  for i = 1, #data, 2 do
    local share = share_of(crawl.token, data[i])
    share.row[RESERVED], share.row[FETCHED], share.dirty = data[i + 1], data[i + 1], true
  end
end

enter[kind]()
redis.call("HSET", crawl.key, "import", line)
write_all()
return { "ok" }
