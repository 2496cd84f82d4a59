-- Merge one process's statistics into the shared hash.
-- KEYS  1 hash
-- ARGV  1 seconds to keep the hash  2 generation of the crawl, or 0 for any  3... (add | set | max | min, field, value) each
local key = KEYS[1]
-- A new generation starts with an empty hash. Statistics of an older generation are ignored.
local mine = tonumber(ARGV[2])
if mine > 0 then
  local theirs = tonumber(redis.call("HGET", key, "gossamer/generation") or 0)
  if mine < theirs then return 0 end
  if mine > theirs then redis.call("DEL", key) end
  redis.call("HSET", key, "gossamer/generation", ARGV[2])
end
for i = 3, #ARGV, 3 do
  local how, field, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local known = redis.call("HGET", key, field)
  if how == "add" then
    if known and not tonumber(known) then redis.call("HDEL", key, field) end
    if string.find(value, "[.eE]") or (known and string.find(known, "[.eE]")) then
      redis.call("HINCRBYFLOAT", key, field, value)
    else
      redis.call("HINCRBY", key, field, value)
    end
  elseif how == "set" or not known then
    redis.call("HSET", key, field, value)
  else
    local old, new = tonumber(known), tonumber(value)
    if not old or not new then old, new = known, value end
    if (how == "max" and new > old) or (how == "min" and new < old) then redis.call("HSET", key, field, value) end
  end
end
redis.call("EXPIRE", key, ARGV[1])
return 1
