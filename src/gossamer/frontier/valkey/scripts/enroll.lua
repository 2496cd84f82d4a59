#!lua flags=allow-oom
-- Give a new egress address its own view of the domains whose budget is per address; some at a time.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 egress  4 cursor, "" to begin  5 most domains a call
-- Returns the next cursor, "" at the end (the egress then counts as complete)
-- include common
-- include throttle
-- include queues
local homes = redis.call("ZRANGE", P .. "homes", 0, -1)
local home_at, inner = string.match(ARGV[4] == "" and "1,0" or ARGV[4], "^(%d+),(%d+)$")
home_at = tonumber(home_at)
local home = homes[home_at]
if not home then
  redis.call("ZADD", P .. "egresses", now, ARGV[3])
  return ""
end
local reply = redis.call("SSCAN", P .. "roster:" .. home, inner, "COUNT", ARGV[5])
for _, domain in ipairs(reply[2]) do
  local _, priority = head_of(home, domain)
  if priority then
    place(home, domain, band_of(priority))
  end
end
write_all()
if reply[1] == "0" then
  return (home_at + 1) .. ",0"
end
return home_at .. "," .. reply[1]
