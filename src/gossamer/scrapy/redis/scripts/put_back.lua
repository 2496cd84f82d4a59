-- Put taken messages back into their key, a list's in front, as if they had not been taken.
-- KEYS  1 message key  2 processing key
-- ARGV  1 type of an empty key: list, set or zset  2... (entry, score, message) each
local kind = redis.call("TYPE", KEYS[1]).ok
if kind == "none" then kind = ARGV[1] end
for i = #ARGV - 2, 2, -3 do
  if redis.call("ZREM", KEYS[2], ARGV[i]) == 1 then
    if kind == "set" then
      redis.call("SADD", KEYS[1], ARGV[i + 2])
    elseif kind == "zset" then
      redis.call("ZADD", KEYS[1], ARGV[i + 1] == "" and 0 or ARGV[i + 1], ARGV[i + 2])
    else
      redis.call("LPUSH", KEYS[1], ARGV[i + 2])
    end
  end
end
return 1
