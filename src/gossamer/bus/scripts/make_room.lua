#!lua flags=allow-oom
-- Delete messages of a topic that nothing is lost with, because the server's memory is full: those that are older than
-- the topic keeps them, and those that every group has acknowledged; where there is no group, and the messages are on
-- another topic as well, the older half.
-- KEYS  1 the topic's stream
-- ARGV  1 milliseconds for which a message is kept  2 1: the messages are copies of those on another topic
-- Returns how many were deleted.
-- Must hold: a message that some group needs is never deleted before its time.
-- Names that are not declared below come from these files in include/:
-- include oldest_needed
local stream = KEYS[1]
if redis.call("EXISTS", stream) == 0 then
  return 0
end
local time = redis.call("TIME")
local oldest = string.format("%.0f", math.max(0, time[1] * 1000 - tonumber(ARGV[1])))
local deleted = redis.call("XTRIM", stream, "MINID", oldest)
local acknowledged = trim_acknowledged(stream)
if acknowledged then
  deleted = deleted + acknowledged
elseif ARGV[2] == "1" then
  deleted = deleted + redis.call("XTRIM", stream, "MAXLEN", math.floor(redis.call("XLEN", stream) / 2))
end
return deleted
