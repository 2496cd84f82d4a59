#!lua flags=allow-oom
-- The oldest events that nobody has confirmed as told.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most
-- Returns { id, epoch ms, event (msgpack: kind, run, spider, purged, crawl), ... }
-- include common
local row = redis.call("ZRANGE", P .. "events", 0, ARGV[3] - 1, "WITHSCORES")
local answer = {}
for i = 1, #row, 2 do
  answer[#answer + 1] = row[i]
  answer[#answer + 1] = row[i + 1]
  answer[#answer + 1] = redis.call("HGET", P .. "event", row[i])
end
return answer
