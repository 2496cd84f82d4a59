-- Join a spider's crawl. Begin it anew (flush it) where that is asked for and no other process is in it.
-- KEYS  1 number of flushes  2 processes in the crawl  3 time of the last flush
-- ARGV  1 1 to flush  2 name of the process  3 ms that the process counts as in the crawl, unless it joins again
--       4 age of the process, ms  5 how long the number of flushes is kept after the last process, ms
-- Returns {the number of flushes, 1 where this call flushed}.
-- Time in ms for which a flush is remembered. If it is too short, a process that joins later than that after its start
-- finds no flush, and flushes the crawl of the processes that were started together with it.
local DAY = 86400000
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call("ZREMRANGEBYSCORE", KEYS[2], "-inf", now)
local flushed = 0
-- A flush since this process was started was made by a process that was started together with it.
local is_recent = now - tonumber(redis.call("GET", KEYS[3]) or 0) <= tonumber(ARGV[4])
if ARGV[1] == "1" and not is_recent and redis.call("ZCARD", KEYS[2]) == 0 then
  redis.call("INCR", KEYS[1])
  redis.call("SET", KEYS[3], now, "PX", DAY)
  flushed = 1
end
redis.call("ZADD", KEYS[2], now + ARGV[3], ARGV[2])
redis.call("PEXPIRE", KEYS[2], ARGV[3])
redis.call("PEXPIRE", KEYS[1], ARGV[5])
return { tonumber(redis.call("GET", KEYS[1]) or 0), flushed }
