#!lua
-- Note when a spider's part of a running crawl is to expire. On the crawl's home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 spider  5 when, epoch ms; 0: it does not
-- Returns 1, or 0 when no run of the crawl is running
-- include common
-- include ends
if redis.call("HGET", P .. "h:" .. ARGV[3], "state") ~= "running" then
  return 0
end
expire_at(ARGV[3], ARGV[4], tonumber(ARGV[5]))
return 1
