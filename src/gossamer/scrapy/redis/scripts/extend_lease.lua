-- Keep entries that are being processed for another lease.
-- KEYS  1 the entries that are being processed
-- ARGV  1 lease ms  then entries
-- Returns 1.
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 2, #ARGV do
  redis.call("ZADD", KEYS[1], "XX", now + ARGV[1], ARGV[i])
end
return 1
