#!lua
-- Read the format and the identity of a shard's frontier, or write them where the shard has none.
-- Must hold: this works with every format, because it is the first call on a frontier of any release; and an id that is
-- there is never replaced: processes notice by it that a shard has lost its data.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 format  4 shards  5 secret  6 id of the shard
-- Returns { format, shards, secret, id } as they stand; nothing is written to a shard of another format
-- Touches (see keys.py) clock, meta
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key = BASE .. "meta"
if redis.call("EXISTS", key) == 0 then
  redis.call("HSET", key, "format", ARGV[3], "shards", ARGV[4], "secret", ARGV[5])
end
if redis.call("HGET", key, "format") == ARGV[3] then
  redis.call("HSETNX", key, "id", ARGV[6])
end
return redis.call("HMGET", key, "format", "shards", "secret", "id")
