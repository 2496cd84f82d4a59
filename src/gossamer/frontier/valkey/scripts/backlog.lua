#!lua flags=allow-oom
-- What waits in queues on this shard, by pool and spider.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix
-- Returns { "<pool>|<spider>", requests, domains, ... }
-- include common
-- include throttle
-- include queues
local row, answer = redis.call("HGETALL", P .. "backlog"), {}
for i = 1, #row, 2 do
  local home = row[i]
  local domains = 0
  for place = 1, PLACES do
    local key = place_key(home, place)
    domains = domains + redis.call(place > 2 and "ZCARD" or "SCARD", key)
  end
  answer[#answer + 1] = home
  answer[#answer + 1] = row[i + 1]
  answer[#answer + 1] = domains
end
return answer
