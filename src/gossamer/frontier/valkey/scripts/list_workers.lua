#!lua flags=allow-oom
-- Return the workers that are registered here and were not silent for so long that they count as dead. Only reads;
-- queries.py reads the answer.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 ms after which a silent worker counts as dead
-- Returns { { worker, ms since its last call, leases, ... }, { "<pool>|<worker>" of those with a browser ... } }, the
--         second on shard 0 only
-- Touches (see keys.py) browsers, clock, l:{worker}, workers
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local row = redis.call("ZRANGEBYSCORE", BASE .. "workers", now - tonumber(ARGV[3]), "+inf", "WITHSCORES")
local answer = {}
local browsers = redis.call("ZRANGEBYSCORE", BASE .. "browsers", "(" .. string.format("%.3f", now), "+inf")
for i = 1, #row, 2 do
  local key = BASE .. "l:" .. row[i]
  answer[#answer + 1] = row[i]
  answer[#answer + 1] = math.max(0, math.floor(now - tonumber(row[i + 1])))
  answer[#answer + 1] = redis.call("HLEN", key) - redis.call("HEXISTS", key, "last")
end
return { answer, browsers }
