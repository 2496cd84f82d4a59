#!lua flags=allow-oom
-- Give up claims of a process, so that others need not wait until they end. On the crawl's home shard. (Token: 16
-- characters that stand for the crawl. Generation: number of the set of URLs that it has seen.)
-- Must hold: a claim of another process stays, and so does what is done.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 generation  5 name of the process  6... names of the claims
-- Returns how many were given up
-- Touches (see keys.py) clock, once:{token}:{generation}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key, released = BASE .. "once:" .. ARGV[3] .. ":" .. ARGV[4], 0
for k = 6, #ARGV do
  local holder = string.match(redis.call("HGET", key, ARGV[k]) or "", "^%d+ (.+)$")
  if holder == ARGV[5] then
    released = released + redis.call("HDEL", key, ARGV[k])
  end
end
return released
