#!lua flags=allow-oom
-- End the runs that have been idle for long enough.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most  4 retention ms
-- Returns { how many runs were due, tokens of which other shards have a say ... }
-- include common
-- include finish
local due = redis.call("ZRANGEBYSCORE", P .. "resting", "-inf", now, "LIMIT", 0, tonumber(ARGV[3]))
local tokens = {}
for _, token in ipairs(due) do
  redis.call("ZREM", P .. "resting", token)
  if check_done(token, tonumber(ARGV[4]), true) then
    tokens[#tokens + 1] = token
  end
end
write_tallies()
return { #due, unpack(tokens) }
