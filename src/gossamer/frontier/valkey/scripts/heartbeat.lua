#!lua flags=allow-oom
-- Say that a worker lives, and hear when another may be dead.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 worker  4 heartbeat ms
-- Returns { leases it has here, or -1 when it was taken for dead;
--           ms until the most silent worker counts as dead, 0 when one does }
-- include common
if not knows(ARGV[3]) then
  return { -1, 0 }
end
redis.call("ZADD", P .. "workers", now, ARGV[3])
local key = P .. "l:" .. ARGV[3]
local held = redis.call("HLEN", key) - redis.call("HEXISTS", key, "last")
if redis.call("EXISTS", P .. "dead") == 1 then
  return { held, 0 }
end
local silent = redis.call("ZRANGE", P .. "workers", 0, 0, "WITHSCORES")[2]
return { held, math.max(0, math.ceil(tonumber(silent) + tonumber(ARGV[4]) - now)) }
