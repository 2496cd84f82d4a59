#!lua
-- Share an origin's robots.txt, and end the claim on it. A domain may have any number of origins (hosts, ports), so all
-- its records together are bounded: the oldest make room.
-- Must hold: scores of `robots-of` only grow while the key exists, and each record is also in that index: a record
-- that is not there is never removed to make room.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 domain  4 origin  5 record  6 its life, ms
--       7 bytes that a domain's records may take
-- Returns how many records made room
-- Touches (see keys.py) clock, robots-claim:{origin}, robots-of:{domain}, robots:{origin}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local domain, origin, record, life, most = ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7])
local OVERHEAD = 300 -- bytes that the server needs for a record besides its text (approximate)

redis.call("SET", BASE .. "robots:" .. origin, record, "PX", life)
redis.call("DEL", BASE .. "robots-claim:" .. origin)

-- Each score is that of the record before plus what this record takes. So the difference of two scores is what was
-- saved between them.
local index = BASE .. "robots-of:" .. domain
local _, newest_score = unpack(redis.call("ZRANGE", index, -1, -1, "WITHSCORES"))
local total = tonumber(newest_score or 0) + OVERHEAD + #record + 2 * #origin
redis.call("ZADD", index, string.format("%.0f", total), origin)
if redis.call("PTTL", index) < life then
  redis.call("PEXPIRE", index, life)
end
local removed = 0
while true do
  local oldest, oldest_score = unpack(redis.call("ZRANGE", index, 0, 0, "WITHSCORES"))
  if total - tonumber(oldest_score) <= most then
    return removed
  end
  redis.call("ZREM", index, oldest)
  redis.call("UNLINK", BASE .. "robots:" .. oldest)
  removed = removed + 1
end
