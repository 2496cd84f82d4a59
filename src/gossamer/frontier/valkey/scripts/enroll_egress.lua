#!lua flags=allow-oom
-- Give a new egress address its own view of the domains whose budget is per address; some at a time.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 egress  4 cursor, "" to begin  5 most domains a call
-- Returns the next cursor, "" at the end (the egress then counts as complete)
-- include common
-- include throttle
-- include queues
local home, inner = string.match(ARGV[4], "^(.-)\n(%d+)$")
if not home then
  home, inner = next_home(""), "0"
end
if home then
  local reply = redis.call("SSCAN", P .. "roster:" .. home, inner, "COUNT", ARGV[5])
  for _, domain in ipairs(reply[2]) do
    local _, priority = head_of(home, domain)
    if priority then
      place(home, domain, band_of(priority))
    end
  end
  write_all()
  inner = reply[1]
  if inner == "0" then
    home = next_home(home)
  end
end
if not home then
  redis.call("ZADD", P .. "egresses", now, ARGV[3])
  return ""
end
return home .. "\n" .. inner
