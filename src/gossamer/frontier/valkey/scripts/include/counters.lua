-- Counters: of crawls, of requests in queues, and of requests that wait for an application. A script changes the same
-- counter many times; here the changes are added up, and write_counters writes each sum once. write_all (writes.lua)
-- calls it at the end of a script; a script that returns without write_all loses its changes.
-- Words: token: 16 characters that stand for a crawl, whose counters are fields of the hash c:{token}. Run: one life of
-- a crawl. Pool: a group of workers with requests of their own. To be queued later: retries and postponed requests,
-- which are in no queue until their time comes.
-- The table `crawls` (crawls.lua) has by token: nothing, where this script has not asked crawl_of for the crawl; false,
-- where it has, and this shard does not know the crawl; else a row. Of a row, this file uses:
--   token, key    the token, and the name of its hash
--   pool, app     the pool and the application of the crawl
--   added, done   requests added and ended in this run, as of now: add_urls.lua raises `added`, count_done below `done`
--   before        the same two as the hash has them
--   new           a table where this script has begun the crawl, which the shard did not know: further fields that are
--                 to be written together with the first counters, by name
-- Must hold: the names of the fields, which are stored (keys.py lists
-- them). A and Z must change in the same call as the requests that they count: a run is finished when they are equal.
-- BASE is from shard.lua. Other names that are not declared below come from these files or their includes:
-- include writes
-- include crawls

local hash_changes = {} -- changes of counters, by the key of their hash, then field
local queued_changes = {} -- what count_queued has gathered: token, spider, priority, count of each change

-- Adds to a counter of a hash.
local function count_in(key, field, count)
  local fields = hash_changes[key] or { [field] = 0 }
  hash_changes[key] = fields
  fields[field] = (fields[field] or 0) + count
end

-- Adds to a crawl's counter.
local function count_crawl(token, field, count)
  local crawl = crawls[token]
  count_in(crawl and crawl.key or BASE .. "c:" .. token, field, count)
end

-- Writes changes of the counters of a hash, and further fields (nil: none). Removes counters that become 0, so that an
-- empty hash is deleted. `known`: values that the hash has (nil: none is known), which this function keeps current.
local function add_to_hash(key, counts, further, known)
  local fields, size, all_known = { nil, nil, nil }, 0, known -- nil: room for three
  for field, count in pairs(counts) do
    if count ~= 0 then
      size = size + 1
      fields[size], all_known = field, all_known and known[field]
    end
  end
  if size < 3 and not all_known and not further then -- a command for each is quicker
    for i = 1, size do
      local sum = call("HINCRBY", key, fields[i], counts[fields[i]])
      if sum == 0 then call("HDEL", key, fields[i]) end
      if known then known[fields[i]] = sum end
    end
    return
  end
  local row, gone, n = { nil, nil, nil, nil, nil, nil }, {}, 0
  for field, value in pairs(further or gone) do
    row[n + 1], row[n + 2], n = field, value, n + 2
  end
  for first = 1, size, 1000 do
    local last = size < first + 999 and size or first + 999
    local values = all_known and known or call("HMGET", key, unpack(fields, first, last))
    for i = first, last do
      local field = fields[i]
      local sum = (values[all_known and field or i - first + 1] or 0) + counts[field]
      if sum == 0 then gone[#gone + 1] = field else row[n + 1], row[n + 2], n = field, sum, n + 2 end
      if known then known[field] = sum end
    end
  end
  if row[1] then call_on_key("HSET", key, row) end
  if gone[1] then call_on_key("HDEL", key, gone) end
end

-- Counts requests of a crawl in queues, for its pool and a spider; a negative count for those that left them.
local function count_backlog(token, spider, count)
  count_in(BASE .. "backlog", crawls[token].pool .. "|" .. spider, count)
end

-- Counts requests that wait for the crawl's application, in queues or to be queued later; a negative count for those
-- that no longer do.
local function count_app(crawl, spider, count)
  count_in(BASE .. "app:" .. crawl.app, spider, count)
end

-- Writes all gathered changes. May be called in the middle of a script, too: what is counted afterwards is written by
-- the next call.
local function write_counters()
  for i = 1, #queued_changes do
    local token, spider, priority, count = unpack(queued_changes[i])
    queued_changes[i] = nil
    count_crawl(token, "p:" .. spider .. ":" .. priority, count)
    count_crawl(token, "q:" .. spider, count)
    count_backlog(token, spider, count)
    count_app(crawls[token], spider, count)
  end
  for token, crawl in pairs(crawls) do
    if crawl then
      local added, done = crawl.added - crawl.before.added, crawl.done - crawl.before.done
      if added ~= 0 or done ~= 0 then
        count_crawl(token, "A", added)
        count_crawl(token, "Z", done)
        crawl.before.added, crawl.before.done = crawl.added, crawl.done
      end
      add_to_hash(crawl.key, hash_changes[crawl.key] or {}, crawl.new, crawl.counters)
      crawl.new, hash_changes[crawl.key] = false, nil
    end
  end
  for key, counts in pairs(hash_changes) do
    add_to_hash(key, counts)
    hash_changes[key] = nil
  end
end

writers[#writers + 1] = write_counters

-- Counts requests of a crawl in queues, everywhere: for its pool, its application, and the crawl itself. A negative
-- count for those that left them. The crawl is one that crawl_of has returned.
local function count_queued(token, spider, priority, count)
  local last = queued_changes[#queued_changes]
  if last and last[1] == token and last[2] == spider and last[3] == priority then
    last[4] = last[4] + count
  else
    queued_changes[#queued_changes + 1] = { token, spider, priority, count }
  end
end

-- Counts requests that have come to their end. `field`: "f:<spider>" (fetched), "F:<spider>:<reason>" (failed) or
-- "D:<spider>:<reason>" (dropped).
local function count_done(crawl, field, count)
  crawl.done = crawl.done + count
  count_crawl(crawl.token, field, count)
end
