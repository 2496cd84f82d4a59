#!lua flags=allow-oom
-- Tell a process the shard's time, and correct that time when a process has noticed that the server's clock was set.
-- docs/adr/0009-the-shards-time.md gives the reasons.
-- LIFE must exceed the time of a few comparisons (policy/server_clock.py, every few seconds), or the processes that
-- agree are forgotten. A shorter LIST_LIFE overlooks a clock that was set back while no process ran.
-- Must hold: each correction counts up `corrections`, so that one step of the clock is corrected once, and `forgot` is
-- set whenever keys may have expired too early: hits that are forgotten would be spent again.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 process  4 the time that the process expects now, ms; "" in its first call
--       5 ms by which the process wants the time corrected, or ""  6 number of corrections that it knows of
-- Returns { time in ms, number of corrections, ms by which this call corrected the time: "0" when it did not }
-- Touches (see keys.py) clock, clocks
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local LIFE = 3600000 -- ms that a process is remembered
-- The list of them lives longer: if the clock is set back while no process runs, the next one has to know.
local LIST_LIFE = 30 * 86400000
local process, expected, wanted = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local clock, clocks = BASE .. "clock", BASE .. "clocks"
local corrections = tonumber(redis.call("HGET", clock, "corrections") or 0)
local corrected = 0

-- Returns the latest time at which another process agreed with the shard's time; 0 where there is none.
local function latest_of_others()
  -- The two latest, one of which may be this process.
  local latest, latest_time, _, second_time = unpack(redis.call("ZREVRANGE", clocks, 0, 1, "WITHSCORES"))
  return tonumber((latest == process and second_time or latest ~= process and latest_time) or 0)
end

-- Moves the shard's time by this much. Less than 0: the server's clock was set forward.
local function correct(ms)
  if ms < 0 then -- keys with a time to live were lost
    redis.call("HSET", clock, "forgot", string.format("%.3f", now + ms))
  end
  redis.call("HINCRBYFLOAT", clock, "offset", string.format("%.3f", ms))
  corrections = redis.call("HINCRBY", clock, "corrections", 1)
  now, corrected = now + ms, ms
end

if wanted then
  -- A process that stood still with its clock (a virtual machine that was paused) believes that the server's was set
  -- forward. If another process has agreed with the server meanwhile, that one is right.
  if corrections == tonumber(ARGV[6]) and (wanted > 0 or latest_of_others() <= expected + CLOCK_STEP) then
    correct(wanted)
  end
elseif not expected then
  local latest = latest_of_others()
  if latest > now + CLOCK_STEP then -- the clock was set back, and no process that noticed is left
    correct(latest - now)
  end
end
-- A process in its first call could not know if the clock had been set a moment before, so it does not count as
-- agreeing.
if corrected ~= 0 or (expected and math.abs(expected - now) <= CLOCK_STEP) then
  redis.call("ZADD", clocks, now, process)
  redis.call("ZREMRANGEBYSCORE", clocks, "-inf", now - LIFE)
  redis.call("PEXPIRE", clocks, LIST_LIFE)
end
return { string.format("%.3f", now), corrections, string.format("%.3f", corrected) }
