#!lua flags=allow-oom
-- Put domains where their policy now says: one domain, or (after a change of the default) all, some at a time.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 domain or ""  4 cursor, "" to begin  5 most domains a call
-- Returns the next cursor, "" at the end
-- include common
-- include throttle
-- include queues
local homes = redis.call("ZRANGE", P .. "homes", 0, -1)

local function replace(home, domain)
  unready(home, domain)
  redis.call("SREM", P .. "off:" .. home, domain)
  redis.call("SREM", P .. "roster:" .. home, domain)
  place(home, domain, nil)
end

if ARGV[3] ~= "" then
  for _, home in ipairs(homes) do
    if redis.call("EXISTS", agenda_key(home, ARGV[3])) == 1 then
      replace(home, ARGV[3])
    end
  end
  write_all()
  return ""
end

-- The cursor walks homes, and in each the places a domain may stand in: 1 aside, 2 roster, 3... the bands.
local home_at, place_at, inner = string.match(ARGV[4] == "" and "1,1,0" or ARGV[4], "^(%d+),(%d+),(%d+)$")
home_at, place_at = tonumber(home_at), tonumber(place_at)
local home = homes[home_at]
if not home then
  return ""
end
local reply
if place_at == 1 then
  reply = redis.call("SSCAN", P .. "off:" .. home, inner, "COUNT", ARGV[5])
elseif place_at == 2 then
  reply = redis.call("SSCAN", P .. "roster:" .. home, inner, "COUNT", ARGV[5])
else
  local scan = redis.call("ZSCAN", ready_key(home, place_at - 2), inner, "COUNT", ARGV[5])
  reply = { scan[1], {} }
  for i = 1, #scan[2], 2 do
    reply[2][#reply[2] + 1] = scan[2][i]
  end
end
for _, domain in ipairs(reply[2]) do
  if redis.call("EXISTS", agenda_key(home, domain)) == 1 then
    replace(home, domain)
  end
end
write_all()
inner = reply[1]
if inner == "0" then
  place_at = place_at + 1
  if place_at > BANDS + 2 then
    home_at, place_at = home_at + 1, 1
  end
end
return home_at .. "," .. place_at .. "," .. inner
