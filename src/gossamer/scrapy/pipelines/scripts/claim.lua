-- Return what is cached of a look-up, or let this process make it, at the next moment that the rate allows.
-- KEYS  1 the answer  2 the failure  3 the process that makes the look-up  4 ms at which the next look-up may begin
-- ARGV  1 name of the process  2 hits  3 their window, ms  4 margin, ms: the look-up begins later than that never
--       5 smallest margin of all processes, ms  6 ms after which the look-up of a process that died is made by another
-- Returns {"answer", JSON}, {"failure", text}, {"wait", ms until it may be claimed} or {"go", ms until it may begin}.
-- A process that has the look-up may call this again, for another moment.
local answer = redis.call("GET", KEYS[1])
if answer then
  return { "answer", answer }
end
local failure = redis.call("GET", KEYS[2])
if failure then
  return { "failure", failure }
end
local owner = redis.call("GET", KEYS[3])
if owner and owner ~= ARGV[1] then
  return { "wait", redis.call("PTTL", KEYS[3]) }
end
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local window, margin, smallest = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local begin = math.max(now, tonumber(redis.call("GET", KEYS[4]) or 0))
-- A look-up may begin late by its margin, so the window is longer by as much.
local following = begin + math.ceil((window + smallest) / tonumber(ARGV[2])) + margin - smallest
redis.call("SET", KEYS[4], string.format("%.0f", following), "PX", math.ceil(following - now + window))
redis.call("SET", KEYS[3], ARGV[1], "PX", begin - now + ARGV[6])
return { "go", begin - now }
