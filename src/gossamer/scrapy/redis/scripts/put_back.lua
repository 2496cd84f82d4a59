-- Put messages back in front of the start key, as if they had never been taken.
-- KEYS  1 the start key  2 the entries that are being processed
-- ARGV  1 type of the start key where it does not exist: list, set or zset  then (entry, score, message) each
-- Returns 1.
local kind = redis.call("TYPE", KEYS[1]).ok
if kind == "none" then
  kind = ARGV[1]
end
for i = #ARGV - 2, 2, -3 do
  local entry, score, message = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if redis.call("ZREM", KEYS[2], entry) == 1 then
    if kind == "set" then
      redis.call("SADD", KEYS[1], message)
    elseif kind == "zset" then
      redis.call("ZADD", KEYS[1], score == "" and 0 or score, message)
    else
      redis.call("LPUSH", KEYS[1], message)
    end
  end
end
return 1
