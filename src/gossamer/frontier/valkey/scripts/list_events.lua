#!lua flags=allow-oom
-- The oldest events that no publisher has confirmed.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most events  4 name of the publisher that calls, or "": they are only read
--       5 ms for which only this publisher gets events
-- Returns { id, epoch ms, event (msgpack: letter, run, spider, purged, crawl), ... }; none while
--         another publisher has them
-- Touches (see keys.py) clock, event, events, publisher
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
