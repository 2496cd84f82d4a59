#!lua
-- Queue the failed requests of a crawl again: those in the list "failed:", which had no answer. All requests of the
-- crawl on this shard get the caller's terms (options), so that a corrected option takes effect. The requests are queued
-- in the run that the caller opened; a shard that is still in an earlier run enters it. (Run: one life of a crawl, from
-- first request to end. Generation: number of the set of URLs that it has seen, which later runs continue.)
-- Must hold: a request leaves the list and enters its queue in one call, or a kill would lose it; and it counts as done
-- no longer, or the run would be finished before it is fetched. Fixed: the form of the rows and entries, which is stored
-- (include/failures.lua, include/entries.lua).
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token (16 characters that stand for the crawl)  4 run  5 generation
--       6 single: 1 where there is one shard  7 crawl (msgpack)  8 limits (msgpack) and terms (opaque)
--       9 version at which the home shard confirmed the run just now, else 0
--       10 spiders whose part has ended: "slink,eother"  11 most requests  12 reason of those to keep, or ""
-- Returns { "closed" } when the run was finished here since then, or is over (the caller asks the home shard),
--         { "purging" } when the queues of an earlier run have to be purged first, or
--         { "ok", requests queued again, requests left in the list, those that were kept and moved to its end }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, egresses, ending, failed:{token}, groups, n, off:{pool}|{spider}, old, opened,
--         per-egress:{pool}|{spider}, policy, purge, q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, t:{token}, w:{scope}, wait:{pool}, x:{domain}, z:{token}
-- transition: failed -> queued on revive
-- transition: dropped -> queued on revive
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include add_urls
-- include entries
local token, packed_terms = ARGV[3], ARGV[8]
local crawl, refusal = crawl_for({
  token = token, run = tonumber(ARGV[4]), generation = ARGV[5], single = ARGV[6], packed_crawl = ARGV[7],
  confirmed = tonumber(ARGV[9]), stopped = ARGV[10],
})
if not crawl then
  return refusal
end

-- Stores these terms under every number that requests of the crawl carry. The hash also has a number for the digest of
-- each terms, in fields that begin with "d": they stay, so that links from pages which were leased before lead to a
-- number with the new terms, too.
local terms_key = BASE .. "t:" .. token
if crawl.first_terms and crawl.first_terms ~= packed_terms then
  redis.call("HSET", crawl.key, "t", packed_terms)
end
local numbers = redis.call("HGETALL", terms_key)
for i = 1, #numbers, 2 do
  if string.sub(numbers[i], 1, 1) ~= "d" and numbers[i + 1] ~= packed_terms then
    redis.call("HSET", terms_key, numbers[i], packed_terms)
  end
end

-- Returns the entry as a new request: without attempts, without the names of workers that died, and with another
-- identity (8 bytes), or a reader of the records would take it for a repetition. The old entry is, after its header and
-- those names, either the URL alone, or extended (bit 0 of its first byte): its identity, the length of the URL in 2
-- bytes, the URL, and what the client packed. The new one is extended, and keeps terms and depth (bytes 3 to 7).
local function as_new(entry, salt)
  local rest = string.sub(entry, (select(2, names_in(entry))))
  if string.byte(entry, 1) % 2 == 1 then
    rest = string.sub(rest, 9)
  else
    rest = string.char(math.floor(#rest / 256), #rest % 256) .. rest
  end
  local identity = string.gsub(string.sub(redis.sha1hex(salt .. entry), 1, 16), "..", function(hex)
    return string.char(tonumber(hex, 16))
  end)
  return string.char(1, 0) .. string.sub(entry, 3, 7) .. identity .. rest
end

local key = BASE .. "failed:" .. token
local salt = redis.call("HINCRBY", BASE .. "n", "retries", 1) .. "|"
local rows, moved = redis.call("LRANGE", key, 0, ARGV[11] - 1), 0
for _, row in ipairs(rows) do
  local counter, priority, spider, domain, entry = cmsgpack.unpack(row)
  if string.match(counter, ":[^:]+$") == ":" .. ARGV[12] then
    redis.call("RPUSH", key, row)
    moved = moved + 1
  else
    count_crawl(token, "k", -1)  -- kept failures
    count_crawl(token, "K", -#row)  -- and their bytes
    count_done(crawl, counter, -1)
    enqueue(crawl, spider, domain, priority, false, as_new(entry, salt))
  end
end
redis.call("LTRIM", key, #rows, -1)
write_all()
return { "ok", #rows - moved, redis.call("LLEN", key), moved }
