#!lua flags=allow-oom
-- Mark as expired the parts (what one spider does of a crawl) whose time is over, of the crawls whose home this shard
-- is. The caller then tells the other shards; maintenance does so where the caller died.
-- Must hold: the row of a part that expires goes in the same step in which `end_early` notes that its shards are to be
-- told.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most parts a call  4 how long an expired crawl refuses submissions, ms
--       5 retention ms
-- Returns { number of parts that expired, 1 when there may be more, tokens (16 characters each) of the crawls whose
--         shards are to be told ... }
-- Touches (see keys.py) clock, ending, expiries, h:{token}, running:{spider}|{appid}, running:|{appid}, stop-markers,
--         stopping, wait:{pool}, workers
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include stopping
local most, marker_ms, retention = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local due = redis.call("ZRANGEBYSCORE", BASE .. "expiries", "-inf", wall, "LIMIT", 0, most)
local count, tokens, is_listed = 0, {}, {}
for _, member in ipairs(due) do
  local token, spider = string.sub(member, 1, 16), string.sub(member, 18) -- a token has 16 characters
  local key = BASE .. "h:" .. token
  local state, part_end = unpack(redis.call("HMGET", key, "state", "st:" .. spider))
  redis.call("ZREM", BASE .. "expiries", member)
  redis.call("HDEL", key, "x:" .. spider)
  if state == "running" and not part_end then
    end_early(token, "expired", spider, marker_ms, retention)
    count = count + 1
    if not is_listed[token] then
      is_listed[token] = true
      tokens[#tokens + 1] = token
    end
  end
end
return { count, #due == most and 1 or 0, unpack(tokens) }
