#!lua flags=allow-oom
-- Return a page of the domains where requests of a spider wait, and how many in each. A domain stands in one of the
-- places of its group "<pool>|<spider>" (see places.lua), and may be returned twice while it moves.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 spider  4 cursor, "" to begin  5 domains to return (approximate)
-- Returns { next cursor, "" at the end, { domain, requests, ... } }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, backlog, clock, off:{pool}|{spider}, per-egress:{pool}|{spider},
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include places
-- include lanes
local MOST_QUEUES = 1000 -- of a domain: no more are counted
local spider, most = ARGV[3], tonumber(ARGV[5])
-- The cursor: "<group>|<place>|<inner cursor>".
local group_there, place, inner = string.match(ARGV[4], "^(.*)|(%d+)|(%d+)$")
place = tonumber(place)

local groups = {} -- of both lanes, from the cursor's on, by name
for _, group in ipairs(redis.call("HKEYS", BASE .. "backlog")) do
  if spider_of(string.match(group, "|(.*)$")) == spider and group >= (group_there or "") then
    groups[#groups + 1] = group
  end
end
table.sort(groups)

-- Returns how many requests of the spider wait on a domain. Of very many queues only the first MOST_QUEUES count.
local function count_requests(group, domain)
  local total, name = 0, string.match(group, "|(.*)$")
  for _, member in ipairs(redis.call("ZRANGE", agenda_key(group, domain), 0, MOST_QUEUES - 1)) do
    local token, priority = string.match(member, "^(.-)|(.*)$")
    total = total + redis.call("LLEN", BASE .. "q:" .. token .. "|" .. name .. "|" .. domain .. "|" .. priority)
  end
  return total
end

local found, index = {}, 1 -- domain, requests, ...; position in `groups`
while groups[index] and #found < 2 * most do
  local group = groups[index]
  if group ~= group_there then
    group_there, place, inner = group, 1, "0"
  end
  local is_set = place <= PER_EGRESS -- else a sorted set, whose members come with their scores
  local members
  inner, members = unpack(redis.call(is_set and "SSCAN" or "ZSCAN", place_key(group, place), inner, "COUNT", most))
  for i = 1, #members, is_set and 1 or 2 do
    local domain = members[i]
    local count = count_requests(group, domain)
    if count > 0 then
      found[#found + 1] = domain
      found[#found + 1] = count
    end
  end
  if inner == "0" then -- all of this place was visited
    place = place + 1
    if place > PLACES then
      index = index + 1
    end
  end
end
if not groups[index] then
  return { "", found }
end
if groups[index] ~= group_there then
  group_there, place, inner = groups[index], 1, "0"
end
return { group_there .. "|" .. place .. "|" .. inner, found }
