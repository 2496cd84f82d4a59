-- Put a late answer where it can be polled.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 the request's own id   2 the answer; '' puts none: it was told already   3 milliseconds to keep it
-- Returns 1; 0 where somebody else has answered the request, or nobody knows it.
local asked = KEYS[1] .. ':asked'
redis.call('DEL', KEYS[1] .. ':owner:' .. ARGV[1])
if redis.call('HDEL', asked, ARGV[1]) == 0 then
  return 0
end
if ARGV[2] ~= '' then
  redis.call('RPUSH', KEYS[1], ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
