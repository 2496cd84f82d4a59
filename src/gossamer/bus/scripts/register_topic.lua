-- Say that a topic is used.
-- KEYS  1 the topics' names
-- ARGV  1 the topic's name  2 ms that a name is remembered
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', ms), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', ms - tonumber(ARGV[2])))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
