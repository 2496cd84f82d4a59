#!lua flags=allow-oom
-- Report the troubles of a process, and forget those that were not confirmed for too long.
-- KEYS  1 a hash by process: "epoch second, space, troubles as JSON"
-- ARGV  1 epoch seconds, or "" for the server's clock  2 seconds after which troubles are forgotten
--       3 the process, or "" to only list them  4 its troubles as JSON; "" for none
-- Returns { process, troubles as JSON, ... }
-- Fixed: fields and values of the hash, which processes of two versions share.
local now = tonumber(ARGV[1]) or tonumber(redis.call("TIME")[1])
if ARGV[3] ~= "" then
  if ARGV[4] == "" then
    redis.call("HDEL", KEYS[1], ARGV[3])
  else
    redis.call("HSET", KEYS[1], ARGV[3], string.format("%.0f %s", now, ARGV[4]))
    redis.call("EXPIRE", KEYS[1], ARGV[2])
  end
end
local rows, answer = redis.call("HGETALL", KEYS[1]), {}
for i = 1, #rows, 2 do
  local at, troubles = string.match(rows[i + 1], "^(%d+) (.*)$")
  if tonumber(at) < now - ARGV[2] then
    redis.call("HDEL", KEYS[1], rows[i])
  else
    answer[#answer + 1] = rows[i]
    answer[#answer + 1] = troubles
  end
end
return answer
