-- Where the domains of a group stand. A group is "<pool>|<spider>": the workers that may lease its requests. The key
-- `groups` lists the groups. A ready set holds the domains of a band (range of priorities) by the time of their next
-- hit; with an egress (address that requests leave from), as that address sees them.
-- Fixed, because domains are stored by them: the bounds and the number of the bands, the names of the keys, the order
-- of the places (the cursors of `apply_default_policy` and `backlog_domains` count them).
local BANDS = 5

-- Returns the band of a priority; the domains of band 1 are served first.
local function band_of(priority)
  if priority >= 75 then return 1 end
  if priority >= 50 then return 2 end
  if priority >= 25 then return 3 end
  if priority >= 1 then return 4 end
  return 5
end

-- Returns the key of a ready set.
local function ready_key(group, band, egress)
  return BASE .. "r:" .. group .. "|" .. band .. (egress and "|" .. egress or "")
end

-- Returns the key of a domain's agenda: its queues in the order in which they are served.
local function agenda_key(group, domain)
  return BASE .. "a:" .. group .. "|" .. domain
end

-- A domain with work stands in one of these places: switched off (blacklisted or paused), or with a budget for each
-- egress address, or in a band. Those of the second place stand in the bands of each egress address, too.
local OFF, PER_EGRESS = 1, 2
local PLACES = PER_EGRESS + BANDS

-- Returns the key of a place, by its number.
local function place_key(group, place)
  if place == OFF then return BASE .. "off:" .. group end
  return place == PER_EGRESS and BASE .. "per-egress:" .. group or ready_key(group, place - PER_EGRESS)
end

-- Returns all groups that had work lately.
local function list_groups()
  return redis.call("ZRANGE", BASE .. "groups", 0, -1)
end
