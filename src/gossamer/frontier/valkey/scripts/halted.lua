#!lua flags=allow-oom
-- All shards of a crawl know what ended: nothing is left to tell, unless more was stopped meanwhile. On the home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 version of the home shard's record when it was read
-- Returns 1, or 0 when there is more to tell
-- include common
if tonumber(redis.call("HGET", P .. "halting", ARGV[3]) or 0) > tonumber(ARGV[4]) then
  return 0
end
redis.call("HDEL", P .. "halting", ARGV[3])
return 1
