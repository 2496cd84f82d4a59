-- Read all counters of a group.
-- KEYS  1 the group, as in `count`
-- ARGV  1 epoch seconds, or "" for the server's clock
-- Returns {seconds, {name, {field, number, ...}, ...}}.
-- The answer is read by control/stats.py.
local MOST_COUNTERS = 10000 -- those that changed longest ago come first; more make the server busy for longer
local now = tonumber(ARGV[1]) or tonumber(redis.call("TIME")[1])
local found = {}
for _, name in ipairs(redis.call("ZRANGE", KEYS[1], 0, MOST_COUNTERS - 1)) do
  local row = redis.call("HGETALL", KEYS[1] .. ":" .. name)
  if #row > 0 then
    found[#found + 1] = name
    found[#found + 1] = row
  end
end
return { now, found }
