-- Register a process at a crawl, or renew its presence. Flush the crawl if wanted and no other process is present.
-- KEYS  1 number of flushes  2 present processes, by the time until which they count as present  3 time of the last flush
-- ARGV  1 "1" to flush  2 name of the process  3 presence in ms  4 age of the process in ms
--       5 ms to keep the number of flushes
-- Returns {number of flushes, 1 if this call flushed, else 0}.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
local flushed = 0
-- A flush after this process was started comes from a process that was started together with it.
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
