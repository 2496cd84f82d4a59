-- Merge one process's statistics into those that all processes of a crawl share.
-- KEYS  1 the statistics: a hash
-- ARGV  1 life of the hash, s  2 generation of the crawl (0: any)  then (add | set | max | min, field, value) each
-- Returns 1, or 0 where the crawl has begun anew since: the statistics of an earlier generation come too late.
-- Users read the hash: its fields and the form of its values are fixed, "gossamer/generation" included.
local key = KEYS[1]
local generation = tonumber(ARGV[2])
if generation > 0 then
  local current = tonumber(redis.call("HGET", key, "gossamer/generation") or 0)
  if generation < current then
    return 0
  end
  if generation > current then
    redis.call("DEL", key)
  end
  redis.call("HSET", key, "gossamer/generation", ARGV[2])
end

-- Whether a number is written with a point or an exponent.
local function is_fraction(text)
  return string.find(text, "[.eE]") ~= nil
end

for i = 3, #ARGV, 3 do
  local how, field, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local current = redis.call("HGET", key, field)
  if how == "add" then
    if current and not tonumber(current) then
      redis.call("HDEL", key, field)
    end
    -- HINCRBY keeps integers exact and without a decimal point, but refuses fractions.
    local is_float = is_fraction(value) or (current and is_fraction(current))
    redis.call(is_float and "HINCRBYFLOAT" or "HINCRBY", key, field, value)
  elseif how == "set" or not current then
    redis.call("HSET", key, field, value)
  else
    local old, new = tonumber(current), tonumber(value)
    if not old or not new then -- compared as text
      old, new = current, value
    end
    if (how == "max" and new > old) or (how == "min" and new < old) then
      redis.call("HSET", key, field, value)
    end
  end
end
redis.call("EXPIRE", key, ARGV[1])
return 1
