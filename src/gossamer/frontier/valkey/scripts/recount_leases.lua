#!lua flags=allow-oom
-- Give leases whose worker the shard does not know to maintenance, which reclaims them, and count again how many leases
-- rate limits have in flight. Only a server that lost a part of its writes leaves anything to correct. (Lease: a request
-- that a worker holds. Scope: what shares one rate limit.)
-- Must hold: all leases are read in one call. A worker that has leases is in `workers` or in `dead` at any time.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 number of workers  then the workers that have leases, then scopes
-- Returns { workers that were not known, rate limits that had a wrong number }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, c:{token}, clock, dead, egresses, l:{worker}, n,
--         off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, w:{scope}, wait:{pool}, workers, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include release
local last_worker, unknown, corrected = 3 + ARGV[3], 0, 0
for i = 4, last_worker do
  local worker = ARGV[i]
  if redis.call("EXISTS", BASE .. "l:" .. worker) == 1 and not redis.call("ZSCORE", BASE .. "workers", worker)
    and redis.call("ZADD", BASE .. "dead", "NX", now, worker) == 1 then
    unknown = unknown + 1
  end
end
local held = {} -- by scope
for _, list in ipairs({ "workers", "dead" }) do
  for _, worker in ipairs(redis.call("ZRANGE", BASE .. list, 0, -1)) do
    local row = redis.call("HGETALL", BASE .. "l:" .. worker)
    for k = 1, #row, 2 do
      if row[k] ~= "last" then
        local scope = select(6, cmsgpack.unpack(row[k + 1]))
        held[scope] = (held[scope] or 0) + 1
      end
    end
  end
end
for i = last_worker + 1, #ARGV do held[ARGV[i]] = held[ARGV[i]] or 0 end
for scope, count in pairs(held) do
  local record = record_of(scope)
  local wrong = record[IN_FLIGHT] - count
  if wrong ~= 0 then
    for _, turn in ipairs(record[PARKED] ~= "" and turns_of(scope, record) or {}) do
      turn.flying = 0 -- too few for a while: what all crawls of the scope have in flight is right, and limits them
    end
    release(scope, string.match(scope, "^[^|]*"), wrong) -- a scope begins with its domain
    corrected = corrected + 1
  end
end
write_all()
return { unknown, corrected }
