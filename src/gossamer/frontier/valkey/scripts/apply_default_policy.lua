#!lua flags=allow-oom
-- Move domains to where a changed default policy says, some at a time; to be repeated until all are done. A domain with
-- waiting requests stands in the ready set of a band (range of priorities), or aside where it is switched off; a group
-- is "<pool>|<spider>".
-- Must hold: the form of the cursor, which is stored so that any process can go on, and the order of the walk. A domain
-- that is moved twice is where it belongs; one that is left out waits under the old policy.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most domains a call
-- Returns 1 when there is more to do, else 0
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, applying-policy, c:{token}, clock, egresses, groups, n,
--         off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, w:{scope}, wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include moves
-- include next_group
local key = BASE .. "applying-policy"

-- The cursor walks groups by name, and in each the places where a domain may stand: "<group>\n<place>\n<inner cursor>".
local cursor = redis.call("GET", key)
if not cursor then
  return 0
end
local group, place, inner = string.match(cursor, "^(.-)\n(%d+)\n(%d+)$")
if not group then
  group, place, inner = next_group(""), 1, "0"
end
place = tonumber(place)
if not group then
  redis.call("DEL", key)
  return 0
end
local is_set = place <= PER_EGRESS -- else a sorted set, whose members come with their scores
local members
inner, members = unpack(redis.call(is_set and "SSCAN" or "ZSCAN", place_key(group, place), inner, "COUNT", ARGV[3]))
for i = 1, #members, is_set and 1 or 2 do
  local domain = members[i]
  if redis.call("EXISTS", agenda_key(group, domain)) == 1 then
    move_domain(group, domain)
  end
end
write_all()
if inner == "0" then -- all of this place was visited
  place = place + 1
  if place > PLACES then
    group, place = next_group(group), 1
  end
end
if not group then
  redis.call("DEL", key)
  return 0
end
redis.call("SET", key, group .. "\n" .. place .. "\n" .. inner)
return 1
