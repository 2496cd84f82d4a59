-- Acknowledge messages for a group. Where a topic keeps its messages until they are acknowledged, delete those that
-- every group has acknowledged.
-- KEYS  1 the topic's stream  2 its facts
-- ARGV  1 group  2 1: kept until acknowledged  3 ms that an empty topic is remembered  then ids
-- Returns how many messages were acknowledged.
-- Must stay one script: a message is deleted only if no group, at this moment, still needs it. IDS_AT_ONCE may be
-- changed, up to the limit at its line.
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

-- Returns the two numbers of a message's id: milliseconds, and the position within them.
local function parse_id(id)
  local ms, number = string.match(id, "(%d+)-(%d+)")
  return { ms = tonumber(ms), number = tonumber(number) }
end

-- Whether one parsed id is older than another.
local function is_before(a, b)
  return a.ms < b.ms or (a.ms == b.ms and a.number < b.number)
end

-- Returns the oldest id that this group still needs. `row`: the group's part of XINFO GROUPS.
local function oldest_needed(row)
  local fields = {}
  for at = 1, #row, 2 do
    fields[row[at]] = row[at + 1]
  end
  if fields["pending"] > 0 then -- delivered and not acknowledged
    local _, oldest_pending = unpack(redis.call("XPENDING", stream, fields["name"]))
    return parse_id(oldest_pending)
  end
  local needed = parse_id(fields["last-delivered-id"])
  needed.number = needed.number + 1 -- the first id that was not delivered
  return needed
end

if ARGV[2] == "1" then
  local oldest
  for _, row in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    local needed = oldest_needed(row)
    if not oldest or is_before(needed, oldest) then
      oldest = needed
    end
  end
  if oldest then
    redis.call("XTRIM", stream, "MINID", string.format("%d-%d", oldest.ms, oldest.number))
  end
  if redis.call("XLEN", stream) == 0 then
    redis.call("PEXPIRE", stream, ARGV[3])
    redis.call("PEXPIRE", facts, ARGV[3])
  end
end
return acknowledged
