#!lua flags=allow-oom
-- A page of the domains where requests of a spider wait, and how many in each.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 home: "<pool>|<spider>"  4 cursor, "" to begin  5 about how many
-- Returns { next cursor, "" at the end, { domain, requests, ... } }
-- include common
-- include throttle
-- include queues
local QUEUES = 1000 -- of a domain: no more are looked at
local home, most = ARGV[3], tonumber(ARGV[5])
local place, inner = string.match(ARGV[4], "^(%d+)|(%d+)$")
place, inner = tonumber(place or 1), inner or "0"
local spider = string.match(home, "|(.*)$")

local function requests(domain)
  local total = 0
  for _, member in ipairs(redis.call("ZRANGE", agenda_key(home, domain), 0, QUEUES - 1)) do
    total = total + redis.call("LLEN", queue_key(string.sub(member, 1, 16), spider, domain, string.sub(member, 18)))
  end
  return total
end

local found = {}
while place <= PLACES and #found < 2 * most do
  local step = place > 2 and 2 or 1
  local reply = redis.call(step == 2 and "ZSCAN" or "SSCAN", place_key(home, place), inner, "COUNT", most)
  for i = 1, #reply[2], step do
    local domain = reply[2][i]
    local count = requests(domain)
    if count > 0 then
      found[#found + 1] = domain
      found[#found + 1] = count
    end
  end
  inner = reply[1]
  if inner == "0" then
    place = place + 1
  end
end
return { place <= PLACES and place .. "|" .. inner or "", found }
