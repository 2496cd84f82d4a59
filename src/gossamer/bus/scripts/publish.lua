-- Append messages to a topic, within the topic's limits.
-- Fixed: the fields of a message and their order, which consumers and `update_gone` read by place; and what `put` and
-- `gone` count, because existing topics have them.
-- KEYS  1 the topic's stream  2 its facts: put (bytes ever appended), gone (bytes of them that were deleted)
-- ARGV  1 the topic's name  2 the channel that wakes consumers  3 bytes that the topic may hold
--       4 1: messages are kept until they are acknowledged, and refused when the topic is full;
--         0: the oldest are deleted when the topic is full
--       5 where ARGV 4 is 0: milliseconds for which a message is kept  then value, key ...
-- Returns {1, deleted messages that some group had not been given}, or {0, bytes held} when the topic is full and
-- nothing was appended.
local topic, channel, most, life = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[5])
local until_acknowledged = ARGV[4] == "1"
local stream, facts = KEYS[1], KEYS[2]
local ENTRY_BYTES = 32 -- what a message takes besides its value and key (approximate; StreamsBus's docstring names it)

-- `put - gone` is what the topic holds, or more: deleted messages are counted in `gone` only by update_gone.
local put, gone = unpack(redis.call("HMGET", facts, "put", "gone"))
put, gone = tonumber(put or "0"), tonumber(gone or "0")

-- Updates `gone`: each message has the number of bytes that were appended before it, so that of the oldest message
-- which is left is the number of deleted bytes.
local function update_gone()
  local first = redis.call("XRANGE", stream, "-", "+", "COUNT", 1)[1]
  local _, fields = unpack(first or {})
  gone = fields and tonumber(fields[4]) or put -- the fourth is the value of c, see XADD below
end

local added_bytes = 0
for at = 6, #ARGV, 2 do
  added_bytes = added_bytes + #ARGV[at] + #ARGV[at + 1] + ENTRY_BYTES
end

-- Whether the new messages do not fit. An empty topic takes any batch, or one that is larger than the topic would wait
-- for ever.
local function is_full()
  return put - gone > 0 and put - gone + added_bytes > most
end

-- What acknowledging has deleted is looked up only when the topic seems to be full: nothing else depends on it.
if until_acknowledged and is_full() then
  update_gone()
  if is_full() then
    redis.call("HSET", facts, "gone", string.format("%.0f", gone))
    return { 0, put - gone }
  end
end

for at = 6, #ARGV, 2 do
  local before = string.format("%.0f", put)
  if ARGV[at + 1] == "" then
    redis.call("XADD", stream, "*", "v", ARGV[at], "c", before)
  else
    redis.call("XADD", stream, "*", "v", ARGV[at], "c", before, "k", ARGV[at + 1])
  end
  put = put + #ARGV[at] + #ARGV[at + 1] + ENTRY_BYTES
end

-- Deletes the oldest messages until the rest fits. How many that takes is not known, so it deletes one, and then more
-- each time; but not more than should suffice if the next ones are as large as the last. The newest message always
-- stays. Returns how many it deleted.
local function shrink()
  local deleted, count = 0, 1
  update_gone()
  while put - gone > most do
    local before = gone
    local went = redis.call("XTRIM", stream, "MAXLEN", math.max(1, redis.call("XLEN", stream) - count))
    if went == 0 then
      break
    end
    deleted = deleted + went
    update_gone()
    local mean = math.max(1, (gone - before) / went)
    count = math.max(1, math.min(2 * count, math.floor((put - gone - most) / mean)))
  end
  return deleted
end

-- Returns a reply of names and values in turn as a table by name.
local function pairs_to_table(row)
  local fields = {}
  for at = 1, #row, 2 do
    fields[row[at]] = row[at + 1]
  end
  return fields
end

-- Returns how many of the messages that were just deleted the group furthest behind had not been given.
local function count_unread(deleted)
  local added = pairs_to_table(redis.call("XINFO", "STREAM", stream))["entries-added"]
  local most_unread = 0
  for _, row in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    local group = pairs_to_table(row)
    local read = group["entries-read"]
    if not read then
      -- The server does not know: the group has read nothing yet; or the server lost count, and then the group counts
      -- as one that has read everything.
      read = group["last-delivered-id"] == "0-0" and 0 or added
    end
    local missed = added - redis.call("XLEN", stream) - read -- all that were ever deleted, but for those it has read
    most_unread = math.max(most_unread, math.min(deleted, missed))
  end
  return most_unread
end

local unread = 0
if until_acknowledged then
  redis.call("PERSIST", stream)
else
  local time = redis.call("TIME")
  local oldest = string.format("%.0f", math.max(0, time[1] * 1000 - life))
  local deleted = redis.call("XTRIM", stream, "MINID", "~", oldest)
  if put - gone > most then
    deleted = deleted + shrink()
  end
  if deleted > 0 then
    unread = count_unread(deleted)
  end
  redis.call("PEXPIRE", stream, string.format("%.0f", life))
end
redis.call("HSET", facts, "put", string.format("%.0f", put), "gone", string.format("%.0f", gone))
if until_acknowledged then
  redis.call("PERSIST", facts)
else
  redis.call("PEXPIRE", facts, string.format("%.0f", life))
end
redis.call("PUBLISH", channel, topic)
return { 1, unread }
