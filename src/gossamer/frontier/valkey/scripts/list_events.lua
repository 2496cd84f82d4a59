#!lua flags=allow-oom
-- The oldest events (ends of runs) that no publisher has confirmed.
-- Must hold: the stored form of an event (events.lua), and that events stay until `acknowledge_events`: this call may
-- be repeated.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most events  4 name of the publisher that calls, or "": they are only read
--       5 ms for which only this publisher gets events
-- Returns { id, epoch ms, event (msgpack: letter, run, spider, purged, crawl), ... }; none while
--         another publisher has them
-- Touches (see keys.py) clock, event, events, publisher
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key, publisher = BASE .. "publisher", ARGV[4]
if publisher ~= "" then
  local current = redis.call("HMGET", key, "name", "until")
  if current[1] and current[1] ~= publisher and now < tonumber(current[2]) then
    return {}
  end
end
local row = redis.call("ZRANGE", BASE .. "events", 0, ARGV[3] - 1, "WITHSCORES")
if publisher ~= "" and #row > 0 then
  redis.call("HSET", key, "name", publisher, "until", now + ARGV[5])
  redis.call("PEXPIRE", key, 3600000)
end
local answer = {}
for i = 1, #row, 2 do
  answer[#answer + 1] = row[i]
  answer[#answer + 1] = row[i + 1]
  answer[#answer + 1] = redis.call("HGET", BASE .. "event", row[i])
end
return answer
