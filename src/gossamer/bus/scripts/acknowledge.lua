-- Acknowledge messages for a group. Where a topic keeps its messages until they are acknowledged, delete those that
-- every group has acknowledged.
-- KEYS  1 the topic's stream  2 its facts
-- ARGV  1 group  2 1: kept until acknowledged  3 ms that an empty topic is remembered  then ids
-- Returns how many messages were acknowledged.
-- Must stay one script: a message is deleted only if no group, at this moment, still needs it.
-- Names that are not declared below come from these files in include/:
-- include oldest_needed
local stream, facts, group = KEYS[1], KEYS[2], ARGV[1]
local IDS_AT_ONCE = 1000 -- Lua's `unpack` fails for several thousands
if redis.call("EXISTS", stream) == 0 then
  return 0
end
local acknowledged = 0
for first = 4, #ARGV, IDS_AT_ONCE do
  local last = math.min(first + IDS_AT_ONCE - 1, #ARGV)
  acknowledged = acknowledged + redis.call("XACK", stream, group, unpack(ARGV, first, last))
end

if ARGV[2] == "1" then
  trim_acknowledged(stream)
  if redis.call("XLEN", stream) == 0 then
    redis.call("PEXPIRE", stream, ARGV[3])
    redis.call("PEXPIRE", facts, ARGV[3])
  end
end
return acknowledged
