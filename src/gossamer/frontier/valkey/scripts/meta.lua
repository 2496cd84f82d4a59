#!lua
-- Read what a frontier says of itself, or make it.
-- KEYS  1 shard prefix (of shard 0)
-- ARGV  1 now  2 prefix  3 format  4 shards  5 secret
-- Returns { format, shards, secret } as they stand
-- include common
local key = P .. "meta"
if redis.call("EXISTS", key) == 0 then
  redis.call("HSET", key, "format", ARGV[3], "shards", ARGV[4], "secret", ARGV[5])
end
return redis.call("HMGET", key, "format", "shards", "secret")
