-- Keep what was taken for another lease.
-- KEYS: the processing key    ARGV: lease in ms, entries...
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  redis.call("ZADD", KEYS[1], "XX", now + ARGV[1], ARGV[i])
end
return 1
