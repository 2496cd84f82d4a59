#!lua flags=allow-oom
-- Announce a worker with a browser, or end its announcement, and return all that are announced.
-- Must hold: every process calls this on shard 0 only, or processes would know different workers. Fixed, because it is
-- stored: "<pool>|<worker>" (a pool is a group of workers), which list_workers.lua reads, too.
-- KEYS  1 prefix of the keys of shard 0
-- ARGV  1, 2 see include/shard.lua  3 "<pool>|<worker>", or "" to read only  4 ms for which it counts as alive, 0: no
--       longer
-- Returns the announced "<pool>|<worker>" ...
-- Touches (see keys.py) browsers, clock
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key, life = BASE .. "browsers", tonumber(ARGV[4])
if ARGV[3] ~= "" then
  redis.call("ZADD", key, now + life, ARGV[3])
  redis.call("ZREMRANGEBYSCORE", key, "-inf", now)
  local latest = redis.call("ZRANGE", key, -1, -1, "WITHSCORES")[2]
  if latest then
    redis.call("PEXPIRE", key, math.ceil(latest - now))
  end
end
return redis.call("ZRANGEBYSCORE", key, "(" .. string.format("%.3f", now), "+inf")
