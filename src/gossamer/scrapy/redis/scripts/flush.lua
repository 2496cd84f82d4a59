-- Come into the crawl; begin it anew where that is wanted and nobody else is there.
-- KEYS: the number of flushes, who is there    ARGV: 1 to flush, our name, how long we are there unless we say so, ms
-- Returns {the number of flushes, 1 where this was one}.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
local flushed = 0
if ARGV[1] == "1" and redis.call("ZCARD", KEYS[2]) == 0 then
  redis.call("INCR", KEYS[1])
  flushed = 1
end
redis.call("ZADD", KEYS[2], now + ARGV[3], ARGV[2])
redis.call("PEXPIRE", KEYS[2], ARGV[3])
return { tonumber(redis.call("GET", KEYS[1]) or 0), flushed }
