#!lua
-- Save the cookies of a site in one session of a crawl, which lives for a while after the last change. Cookies are
-- encrypted by the workers; this script reads none of them.
-- Must hold: a jar has an end of life in the same step in which it is made, and never more than the given number of
-- cookies.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 generation  5 account, or ""  6 site  7 life, ms
--       8 most cookies of a jar  9... for each changed cookie: its field, and what is stored there, "" to remove it
-- Returns the number of cookies that the jar has
-- Touches (see keys.py) clock, jar:{token}:{generation}|{account}|{site}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key = BASE .. "jar:" .. ARGV[3] .. ":" .. ARGV[4] .. "|" .. ARGV[5] .. "|" .. ARGV[6]
local most = tonumber(ARGV[8])
for k = 9, #ARGV, 2 do
  if ARGV[k + 1] == "" then
    redis.call("HDEL", key, ARGV[k])
  end
end
local count = redis.call("HLEN", key)
for k = 9, #ARGV, 2 do
  if ARGV[k + 1] ~= "" and (count < most or redis.call("HEXISTS", key, ARGV[k]) == 1) then
    count = count + redis.call("HSET", key, ARGV[k], ARGV[k + 1])
  end
end
redis.call("PEXPIRE", key, ARGV[7])
return count
