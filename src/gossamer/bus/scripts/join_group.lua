#!lua flags=allow-oom
-- Join a group. A group that does not exist is made, from the oldest message on, and so is the topic. Members that are
-- gone and hold nothing are removed.
-- KEYS  1 the topic's stream
-- ARGV  1 group  2 ms that an empty topic is remembered  3 ms without a call after which a member is gone
-- Returns how many members were removed.
-- Must hold: a member that holds messages is never removed, or they would be lost to the group.
local stream, group = KEYS[1], ARGV[1]
if redis.call("EXISTS", stream) == 0 then
  redis.call("XGROUP", "CREATE", stream, group, "0", "MKSTREAM")
  redis.call("PEXPIRE", stream, ARGV[2])
  return 0
end
local made = redis.pcall("XGROUP", "CREATE", stream, group, "0")
if made.err and not string.find(made.err, "BUSYGROUP", 1, true) then
  return made
end
local removed = 0
for _, row in ipairs(redis.call("XINFO", "CONSUMERS", stream, group)) do
  local member = {}
  for at = 1, #row, 2 do
    member[row[at]] = row[at + 1]
  end
  if member["pending"] == 0 and member["idle"] > tonumber(ARGV[3]) then
    redis.call("XGROUP", "DELCONSUMER", stream, group, member["name"])
    removed = removed + 1
  end
end
return removed
