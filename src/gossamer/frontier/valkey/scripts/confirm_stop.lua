#!lua flags=allow-oom
-- Confirm that all shards of a crawl know what of it ended, unless more was stopped meanwhile, and record the events of
-- it. On the home shard. (Token: 16 characters that stand for a crawl.)
-- Must hold: the caller has told all shards before; the note in `stopping` goes in the same step in which the events
-- are recorded, so that each end is reported once.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 version of the home shard's record when it was read
--       then for each end: spider or "", number of waiting requests that were purged for it
-- Returns 1, or 0 when shards are still to be told
-- Touches (see keys.py) clock, event, events, h:{token}, n, stopping
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include events
local token, key = ARGV[3], BASE .. "h:" .. ARGV[3]
if tonumber(redis.call("HGET", BASE .. "stopping", token) or 0) > tonumber(ARGV[4]) then
  return 0
end
redis.call("HDEL", BASE .. "stopping", token)
for i = 5, #ARGV, 2 do
  local spider, field = ARGV[i], "ev:" .. ARGV[i]
  local letter = redis.call("HGET", key, field)
  if letter then
    redis.call("HDEL", key, field)
    record_event(token, letter, spider, tonumber(ARGV[i + 1]))
  end
end
return 1
