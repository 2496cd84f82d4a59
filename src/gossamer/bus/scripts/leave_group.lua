-- A member leaves its group: what it had not acknowledged is to be had by the others at once.
-- KEYS  1 the topic's stream
-- ARGV  1 group  2 member  3 what the others are to hear  4 the channel they hear it on
-- Returns how many messages there were.
local stream, group, member = KEYS[1], ARGV[1], ARGV[2]
if redis.call('EXISTS', stream) == 0 then return 0 end
local released = 0
while true do
  local rows = redis.call('XPENDING', stream, group, '-', '+', 100, member)
  if #rows == 0 then break end
  local ids = {}
  for _, row in ipairs(rows) do ids[#ids + 1] = row[1] end
  -- To nobody, and idle for so long that whoever looks takes them.
  for _, id in ipairs(ids) do redis.call('XCLAIM', stream, group, 'released', 0, id, 'IDLE', 999999999, 'JUSTID') end
  released = released + #ids
end
redis.call('XGROUP', 'DELCONSUMER', stream, group, member)
if released > 0 then redis.call('PUBLISH', ARGV[4], ARGV[3]) end
return released
