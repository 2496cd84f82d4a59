#!lua
-- Save what workers have learnt of the URL patterns of a site in a crawl: whether rendering changes their pages.
-- Must hold: the hash has an end of life in the same step in which it is made, and never more than the given number of
-- patterns.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 site  5 life, ms  6 most patterns  7... for each: its field and verdict
-- Returns the number of patterns that the hash has
-- Touches (see keys.py) clock, render:{token}|{site}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key = BASE .. "render:" .. ARGV[3] .. "|" .. ARGV[4]
local most = tonumber(ARGV[6])
local count = redis.call("HLEN", key)
for k = 7, #ARGV, 2 do
  if count < most or redis.call("HEXISTS", key, ARGV[k]) == 1 then
    count = count + redis.call("HSET", key, ARGV[k], ARGV[k + 1])
  end
end
redis.call("PEXPIRE", key, ARGV[5])
return count
