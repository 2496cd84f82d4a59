-- Workers that this shard knows. Must hold: a worker in `dead` is not in `workers`, so that it cannot settle requests
-- that other workers have by now.

-- Whether this worker is registered on the shard. A worker that was declared dead and calls again did not die, so it is
-- removed from `deaths`.
local function is_registered(worker)
  if redis.call("ZSCORE", BASE .. "workers", worker) then
    return true
  end
  redis.call("ZREM", BASE .. "deaths", worker)
  return false
end
