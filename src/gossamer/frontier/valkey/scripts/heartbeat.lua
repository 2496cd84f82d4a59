#!lua flags=allow-oom
-- Report that a worker lives, and learn when another may be dead. Leases are the requests that a worker holds.
-- Must hold: a worker that was declared dead is not registered again by this call, because its leases go to other
-- workers.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 ms after which a silent worker counts as dead, at least
-- Returns { leases that the worker has here, or -1 when it was declared dead,
--           ms until the worker that has been silent longest counts as dead, 0 when one does }
-- Touches (see keys.py) clock, dead, deaths, l:{worker}, patience, workers
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
local worker = ARGV[3]
if not is_registered(worker) then
  return { -1, 0 }
end
local limit = note_patience(tonumber(ARGV[4]))
local key = BASE .. "l:" .. worker
local held = redis.call("HLEN", key) - redis.call("HEXISTS", key, "last")
if redis.call("EXISTS", BASE .. "dead") == 1 then
  return { held, 0 }
end
local longest_silent = redis.call("ZRANGE", BASE .. "workers", 0, 0, "WITHSCORES")[2]
return { held, math.max(0, math.ceil(tonumber(longest_silent) + limit - now)) }
