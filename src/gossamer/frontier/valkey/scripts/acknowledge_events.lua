#!lua flags=allow-oom
-- Forget events that were published.
-- Must hold: an event leaves both keys in one call, and may be acknowledged again.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3... ids, at most a thousand
-- Returns how many there were
-- Touches (see keys.py) clock, event, events
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
redis.call("ZREM", BASE .. "events", unpack(ARGV, 3))
return redis.call("HDEL", BASE .. "event", unpack(ARGV, 3))
