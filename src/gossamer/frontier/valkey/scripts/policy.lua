#!lua
-- Set or remove a domain's policy, or the default.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 field: "d:<domain>" or "*"  4 policy (msgpack map), or "" to remove
-- Returns the new version of all policies on this shard
-- include common
if ARGV[4] == "" then
  redis.call("HDEL", P .. "policy", ARGV[3])
else
  redis.call("HSET", P .. "policy", ARGV[3], ARGV[4])
end
return redis.call("HINCRBY", P .. "policy", "version", 1)
