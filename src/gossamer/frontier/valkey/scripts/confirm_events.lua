#!lua flags=allow-oom
-- Forget events: they were told.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3... ids, at most a thousand
-- Returns how many there were
-- include common
redis.call("ZREM", P .. "events", unpack(ARGV, 3))
return redis.call("HDEL", P .. "event", unpack(ARGV, 3))
