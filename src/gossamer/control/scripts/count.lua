-- Count things in buckets of time.
-- KEYS  1 the group: a sorted set of its counters' names by the minute they last changed; each counter is a hash at
--         this key .. ':' .. name: m<minute>, q<quarter of an hour>, h<hour>, `lifetime`
-- ARGV  1 epoch seconds, or '' for the server's clock   2 seconds that an unchanged counter lives   then name, number ...
-- Returns nothing. What no window looks at any more goes when a new bucket begins.
local now = tonumber(ARGV[1]) or tonumber(redis.call('TIME')[1])
local life = ARGV[2]
local buckets = {{'m', 60, 60}, {'q', 900, 96}, {'h', 3600, 168}}

for at = 3, #ARGV, 2 do
  local name, number = ARGV[at], tonumber(ARGV[at + 1])
  local key = KEYS[1] .. ':' .. name
  local begun = false
  for _, bucket in ipairs(buckets) do
    local field = bucket[1] .. math.floor(now / bucket[2])
    if redis.call('HINCRBY', key, field, number) == number then begun = true end
  end
  redis.call('HINCRBY', key, 'lifetime', number)
  if begun then
    local old = {}
    for _, field in ipairs(redis.call('HKEYS', key)) do
      for _, bucket in ipairs(buckets) do
        -- One more than a window needs: it began within that one.
        if field:sub(1, 1) == bucket[1] and tonumber(field:sub(2)) and tonumber(field:sub(2)) < math.floor(now / bucket[2]) - bucket[3] then
          old[#old + 1] = field
        end
      end
    end
    if #old > 0 then redis.call('HDEL', key, unpack(old)) end
    redis.call('EXPIRE', key, life)
    redis.call('ZADD', KEYS[1], math.floor(now / 60), name)
    redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', math.floor((now - life) / 60))
    redis.call('EXPIRE', KEYS[1], life)
  end
end
