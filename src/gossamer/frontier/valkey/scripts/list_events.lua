#!lua flags=allow-oom
-- The oldest events that nobody has confirmed as told.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most  4 name of the caller that will publish them, or "": they are only read
--       5 ms for which only this caller gets events
-- Returns { id, epoch ms, event (msgpack: kind, run, spider, purged, crawl), ... }; none while another caller publishes
-- include common
local key, name = P .. "teller", ARGV[4]
if name ~= "" then
  local teller = redis.call("HMGET", key, "name", "until")
  if teller[1] and teller[1] ~= name and now < tonumber(teller[2]) then
    return {}
  end
end
local row = redis.call("ZRANGE", P .. "events", 0, ARGV[3] - 1, "WITHSCORES")
if name ~= "" and #row > 0 then
  redis.call("HSET", key, "name", name, "until", now + ARGV[5])
  redis.call("PEXPIRE", key, 3600000)
end
local answer = {}
for i = 1, #row, 2 do
  answer[#answer + 1] = row[i]
  answer[#answer + 1] = row[i + 1]
  answer[#answer + 1] = redis.call("HGET", P .. "event", row[i])
end
return answer
