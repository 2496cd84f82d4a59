-- Workers that this shard knows. Must hold: a worker in `dead` is not in `workers`, so that it cannot settle requests
-- that other workers have by now.

-- A worker's time is written once in so many ms, which spares a busy worker most of the writes. Must stay far below the
-- time after which a silent worker counts as dead: a worker may be declared dead so much earlier.
local HEARTBEAT_STEP = 100

-- Whether this worker is registered on the shard; if so, this call counts as its heartbeat. A worker that was declared
-- dead and calls again did not die, so it is removed from `deaths`.
local function is_registered(worker)
  local last = redis.call("ZSCORE", BASE .. "workers", worker)
  if not last then
    redis.call("ZREM", BASE .. "deaths", worker)
  elseif math.abs(now - last) >= HEARTBEAT_STEP then
    redis.call("ZADD", BASE .. "workers", now, worker)
  end
  return last
end

-- Returns the ms after which a silent worker counts as dead: those of the caller, or of the most patient worker that has
-- sent heartbeats lately. Processes with other settings do not declare it dead.
local function dead_after(own)
  return math.max(own, tonumber(redis.call("GET", BASE .. "patience") or 0))
end

-- Notes the ms after which a worker that sends heartbeats wants to count as dead. They count for ten times as long.
-- Returns what `dead_after` does.
local function note_patience(own)
  local known = tonumber(redis.call("GET", BASE .. "patience") or 0)
  if own > known or (own == known and redis.call("PTTL", BASE .. "patience") < 5 * own) then
    redis.call("SET", BASE .. "patience", string.format("%.0f", own), "PX", string.format("%.0f", 10 * own))
  end
  return math.max(own, known)
end
