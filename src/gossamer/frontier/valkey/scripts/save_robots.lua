#!lua
-- Share an origin's robots.txt and end the claim on it. A domain may have any number of origins: hosts, ports. So its
-- records together are bounded; the oldest make room.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 domain  4 origin  5 record  6 its life, ms  7 bytes that a domain's records may take
-- Returns how many made room
-- include common
local origin, record, life, most = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local OVERHEAD = 300 -- about what the server needs to keep a record besides its bytes

redis.call("SET", P .. "robots:" .. origin, record, "PX", life)
redis.call("DEL", P .. "robots-claim:" .. origin)

-- Scores run on by what each record costs, so that the difference of two is what was saved between them.
local index = P .. "robots-of:" .. ARGV[3]
local newest = redis.call("ZRANGE", index, -1, -1, "WITHSCORES")
local total = tonumber(newest[2] or 0) + OVERHEAD + #record + 2 * #origin
redis.call("ZADD", index, string.format("%.0f", total), origin)
if redis.call("PTTL", index) < life then
  redis.call("PEXPIRE", index, life)
end
local gone = 0
while true do
  local oldest = redis.call("ZRANGE", index, 0, 0, "WITHSCORES")
  if total - tonumber(oldest[2]) <= most then
    return gone
  end
  redis.call("ZREM", index, oldest[1])
  redis.call("UNLINK", P .. "robots:" .. oldest[1])
  gone = gone + 1
end
