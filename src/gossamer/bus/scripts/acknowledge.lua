-- A group is done with messages. Of a topic that is kept until acknowledged, what every group is done with goes.
-- KEYS  1 the topic's stream  2 its facts
-- ARGV  1 group  2 1: kept until acknowledged  3 ms that an empty topic is remembered  then ids
local stream = KEYS[1]
if redis.call('EXISTS', stream) == 0 then return 0 end
local done = 0
for first = 4, #ARGV, 1000 do
  done = done + redis.call('XACK', stream, ARGV[1], unpack(ARGV, first, math.min(first + 999, #ARGV)))
end
if ARGV[2] == '1' then
  local oldest = nil  -- needed by somebody: {ms, number}
  local function before(a, b) return a[1] < b[1] or (a[1] == b[1] and a[2] < b[2]) end
  local function parsed(id)
    local ms, number = string.match(id, '(%d+)-(%d+)')
    return {tonumber(ms), tonumber(number)}
  end
  for _, row in ipairs(redis.call('XINFO', 'GROUPS', stream)) do
    local facts = {}
    for at = 1, #row, 2 do facts[row[at]] = row[at + 1] end
    local needed
    if facts['pending'] > 0 then
      needed = parsed(redis.call('XPENDING', stream, facts['name'])[2])
    else
      needed = parsed(facts['last-delivered-id'])
      needed[2] = needed[2] + 1
    end
    if not oldest or before(needed, oldest) then oldest = needed end
  end
  if oldest then redis.call('XTRIM', stream, 'MINID', string.format('%d-%d', oldest[1], oldest[2])) end
  if redis.call('XLEN', stream) == 0 then
    redis.call('PEXPIRE', stream, ARGV[3])
    redis.call('PEXPIRE', KEYS[2], ARGV[3])
  end
end
return done
