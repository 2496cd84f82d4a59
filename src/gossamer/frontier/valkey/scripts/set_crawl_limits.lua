#!lua flags=allow-oom
-- Change the rate and the concurrency that a running crawl asks for. On its home shard and on each that it touched.
-- Must hold: the packed crawl (codec.py), and that only the run which the caller knows is changed.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 crawl (msgpack)
-- Returns 1, or 0 where the run is not known
-- Touches (see keys.py) c:{token}, clock, h:{token}, n
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local token, run, packed_crawl = ARGV[3], ARGV[4], ARGV[5]
local known = 0
for _, key in ipairs({ BASE .. "h:" .. token, BASE .. "c:" .. token }) do
  if redis.call("HGET", key, "run") == run then
    redis.call("HSET", key, "crawl", packed_crawl)
    known = 1
  end
end
if cmsgpack.unpack(packed_crawl)[6] then -- the sixth value (codec.py): the crawl has a rate of its own
  redis.call("HSET", BASE .. "n", "rates", 1)
end
return known
