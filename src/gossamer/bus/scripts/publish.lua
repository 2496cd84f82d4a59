-- Put messages at the end of a topic, within its bounds.
-- KEYS  1 the topic's stream  2 its facts (see streams_keys.py)
-- ARGV  1 the topic's name  2 the channel that wakes consumers  3 bytes that the topic may hold
--       4 1: kept until acknowledged, refused when full; 0: the oldest go  5 ms that the others are kept
--       then value, key ...
-- Returns {1, messages that left and that some group had not been given}; {0, bytes held} when it is full and nothing
-- was put.
local topic, channel, most, keep, life = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local stream, facts = KEYS[1], KEYS[2]
local ENTRY_BYTES = 32  -- what a message costs beyond its value and key, about

local known = redis.call('HMGET', facts, 'put', 'gone')
local put, gone = tonumber(known[1] or '0'), tonumber(known[2] or '0')

-- How many bytes were put before the oldest message that is still there: they have left.
local function look()
  local first = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  gone = first and tonumber(first[2][4]) or put
end

local adding = 0
for at = 6, #ARGV, 2 do adding = adding + #ARGV[at] + #ARGV[at + 1] + ENTRY_BYTES end

-- What left is looked for only when the topic seems to be full: else nothing hangs on it.
if keep and put - gone > 0 and put - gone + adding > most then
  look()
  if put - gone > 0 and put - gone + adding > most then
    redis.call('HSET', facts, 'gone', string.format('%.0f', gone))
    return {0, put - gone}
  end
end

for at = 6, #ARGV, 2 do
  local before = string.format('%.0f', put)
  if ARGV[at + 1] == '' then
    redis.call('XADD', stream, '*', 'v', ARGV[at], 'c', before)
  else
    redis.call('XADD', stream, '*', 'v', ARGV[at], 'c', before, 'k', ARGV[at + 1])
  end
  put = put + #ARGV[at] + #ARGV[at + 1] + ENTRY_BYTES
end

-- The oldest go until what is left fits. How many that is nobody knows, so a few go and then more; but not more than
-- should do if the next are as large as those were.
local function shrink()
  local left, count = 0, 1
  look()
  while put - gone > most do
    local before = gone
    local went = redis.call('XTRIM', stream, 'MAXLEN', math.max(1, redis.call('XLEN', stream) - count))
    if went == 0 then break end
    left = left + went
    look()
    local mean = math.max(1, (gone - before) / went)
    count = math.max(1, math.min(2 * count, math.floor((put - gone - most) / mean)))
  end
  return left
end

-- Of what just left: how many messages the group furthest behind had not been given.
local function unread(left)
  local about = redis.call('XINFO', 'STREAM', stream)
  local added
  for at = 1, #about, 2 do if about[at] == 'entries-added' then added = about[at + 1] end end
  local most_unread = 0
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local group = {}
    for at = 1, #row, 2 do group[row[at]] = row[at + 1] end
    -- A group that never read anything has no count of it.
    local read = group['entries-read'] or (group['last-delivered-id'] == '0-0' and 0 or added)
    local missed = added - redis.call('XLEN', stream) - read
    most_unread = math.max(most_unread, math.min(left, missed))
  end
  return most_unread
end

local missed = 0
if keep then
  redis.call('PERSIST', stream)
else
  local now = redis.call('TIME')
  local left = redis.call('XTRIM', stream, 'MINID', '~', string.format('%.0f', math.max(0, now[1] * 1000 - life)))
  if put - gone > most then left = left + shrink() end
  if left > 0 then missed = unread(left) end
  redis.call('PEXPIRE', stream, string.format('%.0f', life))
end
redis.call('HSET', facts, 'put', string.format('%.0f', put), 'gone', string.format('%.0f', gone))
if keep then
  redis.call('PERSIST', facts)
else
  redis.call('PEXPIRE', facts, string.format('%.0f', life))
end
redis.call('PUBLISH', channel, topic)
return {1, missed}
