#!lua flags=allow-oom
-- Report the troubles of a process, or list those of all. Forgets troubles that were not confirmed for too long: when
-- they are listed, and with each report a few, so that a report costs the same with any number of processes.
-- KEYS  1 a hash by process: "epoch second, space, troubles as JSON"
-- ARGV  1 epoch seconds, or "" for the server's clock  2 seconds after which troubles are forgotten
--       3 the process, or "" to only list them  4 its troubles as JSON; "" for none
-- Returns { process, troubles as JSON, ... }; nothing for a report
-- Fixed: fields and values of the hash, which processes of two versions share.
local now = tonumber(ARGV[1]) or tonumber(redis.call("TIME")[1])
local is_report = ARGV[3] ~= ""
if is_report then
  if ARGV[4] == "" then
    redis.call("HDEL", KEYS[1], ARGV[3])
  else
    redis.call("HSET", KEYS[1], ARGV[3], string.format("%.0f %s", now, ARGV[4]))
    redis.call("EXPIRE", KEYS[1], ARGV[2])
  end
end
local rows = is_report and redis.call("HRANDFIELD", KEYS[1], 2, "WITHVALUES") or redis.call("HGETALL", KEYS[1])
local answer = {}
for i = 1, #rows, 2 do
  local at, troubles = string.match(rows[i + 1], "^(%d+) (.*)$")
  if tonumber(at) < now - ARGV[2] then
    redis.call("HDEL", KEYS[1], rows[i])
  elseif not is_report then
    answer[#answer + 1] = rows[i]
    answer[#answer + 1] = troubles
  end
end
return answer
