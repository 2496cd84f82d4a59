#!lua flags=allow-oom
-- Return whether any run has been idle for long enough. Only reads.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua
-- Returns 1 or 0
-- Touches (see keys.py) clock, idle-until
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
return #redis.call("ZRANGEBYSCORE", BASE .. "idle-until", "-inf", now, "LIMIT", 0, 1)
