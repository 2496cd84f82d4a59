#!lua flags=allow-oom
-- Give a new egress address (from which requests leave) ready sets of its own for the domains whose budget is per
-- address, some at a time. A group is "<pool>|<spider>".
-- May be changed: most domains a call and the form of the cursor, both together with leaseholder.py.
-- Must hold: the address counts as enrolled only after the last domain. Until then its time in `egresses` is negative,
-- and `lease` asks its next worker to begin again.
-- KEYS  1 prefix of the shard's keys
-- ARGV  1, 2 see include/shard.lua  3 egress  4 cursor, "" to begin  5 most domains a call
-- Returns the next cursor, "" at the end (the egress then counts as enrolled)
-- Touches a:{pool}|{spider}|{domain}, c:{token}, clock, egresses, groups, n, off:{pool}|{spider},
--         per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress}, w:{scope},
--         wait:{pool}, x:{domain}
-- include shard
-- include ready
-- include next_group
local group, inner = string.match(ARGV[4], "^(.-)\n(%d+)$")
if not group then
  group, inner = next_group(""), "0"
end
if group then
  local reply = redis.call("SSCAN", place_key(group, PER_EGRESS), inner, "COUNT", ARGV[5])
  for _, domain in ipairs(reply[2]) do
    update_domain(group, domain)
  end
  write_all()
  inner = reply[1]
  if inner == "0" then
    group = next_group(group)
  end
end
if not group then
  redis.call("ZADD", BASE .. "egresses", now, ARGV[3])
  return ""
end
return group .. "\n" .. inner
