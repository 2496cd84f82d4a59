#!lua flags=allow-oom
-- After a change of the default policy: put domains where it now says, some at a time; repeat until done.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most domains a call
-- Returns 1 when there is more to do, else 0
-- include common
-- include throttle
-- include queues
-- The cursor walks homes by name, and in each the places a domain may stand in.
local cursor = redis.call("GET", P .. "rescoring")
if not cursor then
  return 0
end
local home, place_at, inner = string.match(cursor, "^(.-)\n(%d+)\n(%d+)$")
if not home then
  home, place_at, inner = next_home(""), 1, "0"
end
place_at = tonumber(place_at)
if not home then
  redis.call("DEL", P .. "rescoring")
  return 0
end
local reply
if place_at <= 2 then
  reply = redis.call("SSCAN", place_key(home, place_at), inner, "COUNT", ARGV[3])
else
  local scan = redis.call("ZSCAN", place_key(home, place_at), inner, "COUNT", ARGV[3])
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
  if place_at > PLACES then
    home, place_at = next_home(home), 1
  end
end
if not home then
  redis.call("DEL", P .. "rescoring")
  return 0
end
redis.call("SET", P .. "rescoring", home .. "\n" .. place_at .. "\n" .. inner)
return 1
