-- Workers that this shard knows. Must hold: a worker in `dead` is not in `workers`, so that it cannot settle requests
-- that other workers have by now.

-- Whether this worker is registered on the shard; if so, this call counts as its heartbeat. A worker that was declared
-- dead and calls again did not die, so it is removed from `deaths`.
local function is_registered(worker)
  if redis.call("ZADD", BASE .. "workers", "XX", "CH", now, worker) == 1
    or redis.call("ZSCORE", BASE .. "workers", worker) then -- not changed: it has called at this time before
    return true
  end
  redis.call("ZREM", BASE .. "deaths", worker)
  return false
end
