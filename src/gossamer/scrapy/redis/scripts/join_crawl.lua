-- Come into the crawl; begin it anew where that is wanted and nobody else is there.
-- KEYS  1 number of flushes  2 processes that are there  3 time of the last flush
-- ARGV  1 1 to flush  2 our name  3 how long we are there unless we say so again, ms  4 our process's age, ms
--       5 how long the number of flushes is kept after the last process, ms
-- Returns {the number of flushes, 1 where this was one}.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
local flushed = 0
-- A flush since our process was started was made by one that was started together with ours.
local recent = now - tonumber(redis.call("GET", KEYS[3]) or 0) <= tonumber(ARGV[4])
if ARGV[1] == "1" and not recent and redis.call("ZCARD", KEYS[2]) == 0 then
  redis.call("INCR", KEYS[1])
  redis.call("SET", KEYS[3], now, "PX", 86400000)
  flushed = 1
end
redis.call("ZADD", KEYS[2], now + ARGV[3], ARGV[2])
redis.call("PEXPIRE", KEYS[2], ARGV[3])
redis.call("PEXPIRE", KEYS[1], ARGV[5])
return { tonumber(redis.call("GET", KEYS[1]) or 0), flushed }
