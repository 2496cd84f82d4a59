#!lua flags=allow-oom
-- Whether any run has been idle for long enough.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix
-- Returns 1 or 0
-- Touches (see keys.py) clock, idle-until
-- include shard
return #redis.call("ZRANGEBYSCORE", BASE .. "idle-until", "-inf", now, "LIMIT", 0, 1)
