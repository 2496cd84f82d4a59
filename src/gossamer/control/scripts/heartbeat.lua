#!lua flags=allow-oom
-- Report that a process lives, or list those that do. Forget those that were silent for too long.
-- KEYS  1 the processes of a role: a sorted set by the epoch second of their last heartbeat
-- ARGV  1 epoch seconds, or "" for the server's clock  2 seconds of silence after which a process is forgotten
--       3 the process, or "" to only list them
-- Returns the processes that live; nothing for a report, which must not cost more with more processes
-- Fixed: members and scores of the set, which processes of two versions share.
local now = tonumber(ARGV[1]) or tonumber(redis.call("TIME")[1])
redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", "(" .. (now - ARGV[2]))
if ARGV[3] ~= "" then
  redis.call("ZADD", KEYS[1], now, ARGV[3])
  redis.call("EXPIRE", KEYS[1], ARGV[2])
  return {}
end
return redis.call("ZRANGE", KEYS[1], 0, -1)
