#!lua flags=allow-oom
-- Whether any run has been idle for long enough.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix
-- Returns how many, at most 1
-- include common
return #redis.call("ZRANGEBYSCORE", P .. "resting", "-inf", now, "LIMIT", 0, 1)
