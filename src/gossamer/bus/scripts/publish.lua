-- Put messages at the end of a topic, within its bounds.
-- KEYS  1 the topic's stream; beside it `:facts`, a hash: avg (bytes of a message, moving), trimmed (messages that left
--         unread)
-- ARGV  1 the topic's name  2 the channel that wakes consumers  3 bytes that the topic may hold
--       4 1: kept until acknowledged, refused when full; 0: the oldest go  5 ms that the others are kept
--       then value, key ...
-- Returns 1; 0 when it is full and nothing was put.
local topic, channel, most, keep, life = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', tonumber(ARGV[5])
local stream, facts = KEYS[1], KEYS[1] .. ':facts'
local length = redis.call('XLEN', stream)
local average = tonumber(redis.call('HGET', facts, 'avg') or '')
if keep and average and length * average >= most then return 0 end

local bytes, count = 0, 0
for at = 6, #ARGV, 2 do
  if ARGV[at + 1] == '' then
    redis.call('XADD', stream, '*', 'v', ARGV[at])
  else
    redis.call('XADD', stream, '*', 'v', ARGV[at], 'k', ARGV[at + 1])
  end
  bytes = bytes + #ARGV[at] + #ARGV[at + 1] + 32
  count = count + 1
end
local weight = math.min(1, count / math.max(1, math.min(length + count, 1000)))
average = average and average + (bytes / count - average) * weight or bytes / count
redis.call('HSET', facts, 'avg', average)

if keep then
  redis.call('PERSIST', stream)
  redis.call('PERSIST', facts)
else
  local now = redis.call('TIME')
  local gone = redis.call('XTRIM', stream, 'MINID', '~', string.format('%d', math.max(0, now[1] * 1000 - life)))
  if (length + count) * average > most then
    gone = gone + redis.call('XTRIM', stream, 'MAXLEN', '~', math.max(1, math.floor(most / average)))
  end
  if gone > 0 then
    for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
      -- Somebody meant to read them and had not come to it.
      local lag = row[12]
      if not lag or tonumber(lag) >= redis.call('XLEN', stream) then
        redis.call('HINCRBY', facts, 'trimmed', gone)
        break
      end
    end
  end
  redis.call('PEXPIRE', stream, string.format('%d', life))
  redis.call('PEXPIRE', facts, string.format('%d', life))
end
redis.call('PUBLISH', channel, topic)
return 1
