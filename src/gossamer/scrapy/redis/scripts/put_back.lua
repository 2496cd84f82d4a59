-- Put messages back in front, as if they had never been taken.
-- KEYS: the start key, its processing key    ARGV: list, set or zset, then (entry, score, message) each
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
