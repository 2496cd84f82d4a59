#!lua flags=allow-oom
-- Change what a running crawl wishes for every domain. On its home shard and on each that it touched.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 crawl (msgpack)
-- Returns 1, or 0 where the run is not known
-- include common
local token, known = ARGV[3], 0
local home, here = P .. "h:" .. token, P .. "c:" .. token
if redis.call("HGET", home, "run") == ARGV[4] then
  redis.call("HSET", home, "crawl", ARGV[5])
  known = 1
end
if redis.call("HGET", here, "run") == ARGV[4] then
  redis.call("HSET", here, "crawl", ARGV[5])
  known = 1
end
if cmsgpack.unpack(ARGV[5])[6] then
  redis.call("HSET", P .. "n", "wishes", 1)
end
return known
