#!lua flags=allow-oom
-- Note that a topic is used, and forget topics that are not used any more.
-- KEYS  1 the topics' names
-- ARGV  1 the topic's name  2 ms that a name is remembered
-- Returns 1.
-- Fixed: the names and their scores, ms since 1970, which are stored.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZADD", KEYS[1], string.format("%.0f", now), ARGV[1])
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", string.format("%.0f", now - tonumber(ARGV[2])))
redis.call("PEXPIRE", KEYS[1], ARGV[2])
return 1
