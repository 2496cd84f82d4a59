-- The beginning of every script: the prefix of the shard's keys, and the shard's time. A shard is a part of the
-- frontier whose keys lie together on one server. Comments on lines of their own are left out when the scripts are
-- loaded.
-- Must hold: a call that expects another time returns "CLOCK" before it reads or writes anything else; commands.py then
-- compares the clocks and calls again.
-- KEYS  1 prefix of the shard's keys, e.g. "gossamer:{0}:". Its braces keep every key of the script in one
--         cluster slot.
-- ARGV  1 "~" and the time in milliseconds that the caller expects; "" when it expects none; for tests, the time itself
--       2 prefix of all keys and channels of the frontier, e.g. "gossamer"
local BASE = KEYS[1]
local INF = math.huge
local call = redis.call -- quicker than to look for it in each call
-- Milliseconds. A time that differs by more shows that the server's clock was set, or that the call was delayed. Must
-- be longer than the drift of the clocks and the delay of a normal call between two comparisons
-- (policy/server_clock.py).
local CLOCK_STEP = 1000

-- `now` is the shard's time. It goes on evenly when the server's clock is set, and nearly all times of the frontier are
-- in it. `wall` is the server's clock, for times that people give and read. `forgot` is when keys with a time to live
-- were last lost to such a change of the clock. All in milliseconds.
local now, wall, forgot = tonumber(ARGV[1]), nil, 0
wall = now
if not now then
  local time, clock = redis.call("TIME"), redis.call("HMGET", BASE .. "clock", "offset", "forgot")
  wall = time[1] * 1000 + time[2] / 1000
  now, forgot = wall + tonumber(clock[1] or 0), tonumber(clock[2] or 0)
  local expected = tonumber(string.sub(ARGV[1], 2))
  if expected and math.abs(now - expected) > CLOCK_STEP then
    return redis.status_reply("CLOCK") -- the script did nothing
  end
end
