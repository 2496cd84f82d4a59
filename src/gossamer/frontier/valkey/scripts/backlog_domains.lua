#!lua flags=allow-oom
-- A page of the domains where requests of a spider wait, and how many in each.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 spider  4 cursor, "" to begin  5 about how many
-- Returns { next cursor, "" at the end, { domain, requests, ... } }
-- include common
-- include throttle
-- include queues
local QUEUES = 1000 -- of a domain: no more are looked at
local spider, most = ARGV[3], tonumber(ARGV[5])
local at, place, inner = string.match(ARGV[4], "^(.*)|(%d+)|(%d+)$") -- the pool, and where in it
place = tonumber(place)

local pools = {} -- from the cursor's on, by name
for _, home in ipairs(redis.call("HKEYS", P .. "backlog")) do
  local pool, of = string.match(home, "^([^|]*)|(.*)$")
  if of == spider and pool >= (at or "") then
    pools[#pools + 1] = pool
  end
end
table.sort(pools)

local function requests(home, domain)
  local total = 0
  for _, member in ipairs(redis.call("ZRANGE", agenda_key(home, domain), 0, QUEUES - 1)) do
    total = total + redis.call("LLEN", queue_key(string.sub(member, 1, 16), spider, domain, string.sub(member, 18)))
  end
  return total
end

local found, number = {}, 1
while pools[number] and #found < 2 * most do
  local home = pools[number] .. "|" .. spider
  if pools[number] ~= at then
    at, place, inner = pools[number], 1, "0"
  end
  local key, step = place_key(home, place), place > 2 and 2 or 1
  local reply = redis.call(step == 2 and "ZSCAN" or "SSCAN", key, inner, "COUNT", most)
  for i = 1, #reply[2], step do
    local domain = reply[2][i]
    local count = requests(home, domain)
    if count > 0 then
      found[#found + 1] = domain
      found[#found + 1] = count
    end
  end
  inner = reply[1]
  if inner == "0" then
    place = place + 1
    if place > PLACES then
      number = number + 1
    end
  end
end
if not pools[number] then
  return { "", found }
end
if pools[number] ~= at then
  at, place, inner = pools[number], 1, "0"
end
return { at .. "|" .. place .. "|" .. inner, found }
