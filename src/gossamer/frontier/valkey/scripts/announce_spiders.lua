#!lua flags=allow-oom
-- Announce spiders of a lane (kind of worker), and list all that are announced. A spider is a name under which workers
-- process pages.
-- Must hold: the names of the lanes, which are stored, and that every process calls this on shard 0 only, or processes
-- would know different spiders.
-- KEYS  1 prefix of the keys of shard 0
-- ARGV  1, 2 see include/shard.lua  3 life of an announcement, ms  4 lane that announces (`fast` or `scrapy`)
--       then the names of its spiders; none: only list
-- Returns { spiders of the fast lane, spiders of the Scrapy lane }
-- Touches (see keys.py) clock, spiders:{lane}
-- Names that are not declared below come from these files in include/, or from their own includes:
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
