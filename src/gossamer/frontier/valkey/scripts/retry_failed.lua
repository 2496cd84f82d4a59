#!lua
-- Queue failed requests of a crawl again: those in the list "failed:". If the caller gives terms (options), all requests
-- of the crawl on this shard get them, so that a corrected option takes effect. The requests are queued in the run that
-- the caller opened; a shard that is still in an earlier run enters it. (Run: one life of a crawl, from first request to
-- end. Generation: number of the set of URLs that it has seen, which later runs continue.)
-- Must hold: a request leaves the list and enters its queue in one call, or a kill would lose it; and it counts as done
-- no longer, or the run would be finished before it is fetched. Fixed: the form of the rows and entries, which is stored
-- (include/failures.lua, include/entries.lua).
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token (16 characters that stand for the crawl)  4 run  5 generation
--       6 single: 1 where there is one shard  7 crawl (msgpack)  8 limits (msgpack) and terms (opaque), or ""
--       9 version at which the home shard confirmed the run just now, else 0
--       10 spiders whose part has ended: "slink,eother"  11 most requests  12 reason of those to keep, or ""
--       13 the only reason, or ""  14 the only URL, behind its length in 2 bytes, or ""
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
-- include queues
-- include enter_run
-- include entries
local token, packed_terms = ARGV[3], ARGV[8]
local crawl, refusal = crawl_for({
  token = token, run = tonumber(ARGV[4]), generation = ARGV[5], single = ARGV[6], packed_crawl = ARGV[7],
  confirmed = tonumber(ARGV[9]), stopped = ARGV[10],
})
if not crawl then
  return refusal
end

-- Stores these terms under every number that requests of the crawl carry. Fields that begin with "d", each with a number
-- for the digest of terms, stay: links from pages which were leased before lead to a number with the new terms, too.
local terms_key = BASE .. "t:" .. token
if packed_terms ~= "" and crawl.first_terms and crawl.first_terms ~= packed_terms then
  redis.call("HSET", crawl.key, "t", packed_terms)
end
local numbers = packed_terms ~= "" and redis.call("HGETALL", terms_key) or {}
for i = 1, #numbers, 2 do
  if string.sub(numbers[i], 1, 1) ~= "d" and numbers[i + 1] ~= packed_terms then
    redis.call("HSET", terms_key, numbers[i], packed_terms)
  end
end

-- Returns the length of an entry's URL (2 bytes), the URL, and what the client packed. An entry is, after its header and
-- names of workers that died, the URL alone, or extended (bit 0 of its first byte): its identity (8 bytes), then these.
local function tail_of(entry)
  local rest = string.sub(entry, (select(2, names_in(entry))))
  if string.byte(entry, 1) % 2 == 1 then
    return string.sub(rest, 9)
  end
  return string.char(math.floor(#rest / 256), #rest % 256) .. rest
end

-- Returns the entry as a new request, extended: without attempts, without those names, and with another identity, or a
-- reader of the records would take it for a repetition. It keeps terms and depth (bytes 3 to 7).
local function as_new(entry, salt)
  local identity = string.gsub(string.sub(redis.sha1hex(salt .. entry), 1, 16), "..", function(hex)
    return string.char(tonumber(hex, 16))
  end)
  return string.char(1, 0) .. string.sub(entry, 3, 7) .. identity .. tail_of(entry)
end

-- Returns whether a request that `counter` counts as failed is to be queued again.
local function is_wanted(counter, entry)
  local reason, kept, only, url = string.match(counter, "[^:]*$"), ARGV[12], ARGV[13], ARGV[14]
  local is_of_reason = (kept == "" or reason ~= kept) and (only == "" or reason == only)
  return is_of_reason and string.sub(tail_of(entry), 1, #url) == url
end

local key, salt = BASE .. "failed:" .. token, redis.call("HINCRBY", BASE .. "n", "retries", 1) .. "|"
local rows, moved = redis.call("LRANGE", key, 0, ARGV[11] - 1), 0
for _, row in ipairs(rows) do
  local counter, priority, spider, domain, entry = cmsgpack.unpack(row)
  if is_wanted(counter, entry) then
    count_crawl(token, "k", -1)  -- kept failures
    count_crawl(token, "K", -#row)  -- and their bytes
    count_done(crawl, counter, -1)
    enqueue(crawl, spider, domain, priority, false, as_new(entry, salt))
  else
    redis.call("RPUSH", key, row)
    moved = moved + 1
  end
end
redis.call("LTRIM", key, #rows, -1)
write_all()
return { "ok", #rows - moved, redis.call("LLEN", key), moved }
