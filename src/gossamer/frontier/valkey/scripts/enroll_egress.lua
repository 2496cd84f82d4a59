#!lua flags=allow-oom
-- Enroll a new egress (an address that requests leave from): put the domains whose rate limit is per egress into ready
-- sets of this egress. A ready set lists domains by the time of their next hit; a group is "<pool>|<spider>".
-- `lease` calls for this when a worker first uses an egress. It adds the egress to `egresses` with a negative time, and
-- this script makes the time positive after the last domain. Until then each `lease` with it asks for a new beginning.
-- One call visits some of a group's domains; update_domain puts each into the ready sets of all egresses in `egresses`,
-- this one included.
-- Must hold: the time becomes positive only after the last domain, or the domains that are left out would never be
-- leased through this egress.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 egress  4 cursor, "" to begin  5 domains to visit in this call (about)
-- Returns the next cursor, "" at the end
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, c:{token}, clock, egresses, groups, n, off:{pool}|{spider},
--         per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress}, w:{scope},
--         wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include ready
-- include next_group
-- The cursor: a group, a line break, and where SSCAN goes on in that group's set ("0": at its beginning).
local group, position = string.match(ARGV[4], "^(.-)\n(%d+)$")
if not group then
  group, position = next_group(""), "0"
end
if group then
  local domains
  position, domains = unpack(redis.call("SSCAN", place_key(group, PER_EGRESS), position, "COUNT", ARGV[5]))
  for _, domain in ipairs(domains) do
    update_domain(group, domain)
  end
  write_all()
  if position == "0" then -- SSCAN has returned all
    group = next_group(group)
  end
end
if not group then
  redis.call("ZADD", BASE .. "egresses", now, ARGV[3])
  return ""
end
return group .. "\n" .. position
