-- Take an answer; where there is none yet, take over a request whose owner died.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 milliseconds after which an owner counts as dead
-- Returns {1, answer}, {2, id, request} for a request that is yours now, or {0}.
local answer = redis.call('LPOP', KEYS[1])
if answer then
  return {1, answer}
end
local asked = redis.call('HGETALL', KEYS[1] .. ':asked')
for at = 1, #asked, 2 do
  if redis.call('SET', KEYS[1] .. ':owner:' .. asked[at], '', 'PX', ARGV[1], 'NX') then
    return {2, asked[at], asked[at + 1]}
  end
end
return {0}
