#!lua flags=allow-oom
-- Decide that a run is finished, once: only if nothing joined since its version was read. On the home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 version  6 retention ms
--       7 silent: 1 when every spider's part ended early, and so was told of
-- Returns 1 decided now, 0 not
-- include common
-- include events
local key = P .. "h:" .. ARGV[3]
local row = redis.call("HMGET", key, "state", "run", "version")
if row[1] ~= "running" or row[2] ~= ARGV[4] or (row[3] or "0") ~= ARGV[5] then
  return 0
end
redis.call("HSET", key, "state", "finished", "ended", now)
redis.call("ZADD", P .. "ending", now + tonumber(ARGV[6]), ARGV[3])
if ARGV[7] ~= "1" then
  tell(ARGV[3], "f", "", 0)
end
return 1
