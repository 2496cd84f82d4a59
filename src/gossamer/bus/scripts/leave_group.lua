-- Remove a member from its group. The other members can have at once what it had not acknowledged.
-- KEYS  1 the topic's stream
-- ARGV  1 group  2 member  3 message that wakes the other members  4 the channel for it
-- Returns how many messages the member gave back.
-- Must hold: the messages are given back before the member is removed, which would drop them.
local stream, group, member = KEYS[1], ARGV[1], ARGV[2]
local LONG_IDLE = 999999999 -- ms: longer than any member waits before it takes a message over
if redis.call("EXISTS", stream) == 0 then
  return 0
end
local returned = 0
while true do
  local rows = redis.call("XPENDING", stream, group, "-", "+", 100, member)
  if #rows == 0 then
    break
  end
  -- Assigned to no real member, and idle for so long that the next member that looks takes them.
  for _, row in ipairs(rows) do
    redis.call("XCLAIM", stream, group, "released", 0, row[1], "IDLE", LONG_IDLE, "JUSTID")
  end
  returned = returned + #rows
end
redis.call("XGROUP", "DELCONSUMER", stream, group, member)
if returned > 0 then
  redis.call("PUBLISH", ARGV[4], ARGV[3])
end
return returned
