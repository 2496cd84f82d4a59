#!lua flags=allow-oom
-- Say that a worker lives.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 worker
-- Returns how many leases it has here, or -1 when it was taken for dead
-- include common
if not redis.call("ZSCORE", P .. "workers", ARGV[3]) then
  return -1
end
redis.call("ZADD", P .. "workers", now, ARGV[3])
local key = P .. "l:" .. ARGV[3]
return redis.call("HLEN", key) - redis.call("HEXISTS", key, "last")
