#!lua flags=allow-oom
-- Announce spiders of a lane, and list all that are announced.
-- KEYS  1 shard prefix (of shard 0)
-- ARGV  1 now  2 prefix  3 life of an announcement, ms  4 lane that announces (`fast` or `scrapy`)
--       then the names of its spiders; none: only list
-- Returns { spiders of the fast lane, spiders of the Scrapy lane }
-- Touches (see keys.py) clock, spiders:{lane}
-- include shard
local life = tonumber(ARGV[3])
local announced = {}
for place, lane in ipairs({ "fast", "scrapy" }) do
  local key = BASE .. "spiders:" .. lane
  if lane == ARGV[4] and ARGV[5] then
    for k = 5, #ARGV do
      redis.call("ZADD", key, now, ARGV[k])
    end
    redis.call("ZREMRANGEBYSCORE", key, "-inf", now - life)
    redis.call("PEXPIRE", key, life)
  end
  announced[place] = redis.call("ZRANGEBYSCORE", key, "(" .. string.format("%.0f", now - life), "+inf")
end
return announced
