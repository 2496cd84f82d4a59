#!lua flags=allow-oom
-- Close a run on one shard if all that was added here is done. A closed run refuses additions until the home shard was
-- asked, so that the sum over all shards stands still while the home shard decides.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 retention ms
-- Returns 1 closed (or not of this run), 0 there is work
-- include common
local token = ARGV[3]
local crawl = crawl_of(token)
if not crawl or crawl.run ~= tonumber(ARGV[4]) then
  return 1
end
if crawl.added ~= crawl.done then
  return 0
end
if crawl.state == "r" then
  redis.call("HSET", P .. "c:" .. token, "st", "f")
end
redis.call("ZADD", P .. "ending", now + tonumber(ARGV[5]), token)
redis.call("ZREM", P .. "idle", token)
return 1
