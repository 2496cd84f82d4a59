#!lua flags=allow-oom
-- Mark a crawl, or one spider's part of it, as ended early. On the crawl's home shard, before its shards are halted.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 state: stopped, expired or finished (given up, may run anew)  5 spider or ""
--       6 how long the mark is kept, ms  7 retention ms
-- Returns the shards it touched, "3,5", or false when there is no such crawl
-- include common
local key = P .. "h:" .. ARGV[3]
local row = redis.call("HMGET", key, "state", "shards")
if not row[1] then
  return false
end
if ARGV[5] ~= "" then
  redis.call("HSET", key, "st:" .. ARGV[5], string.sub(ARGV[4], 1, 1))
elseif row[1] == "running" or (row[1] == "finished" and ARGV[4] ~= "finished") then
  redis.call("HSET", key, "state", ARGV[4], "ended", now)
  if ARGV[4] ~= "finished" then
    redis.call("ZADD", P .. "marks", now + tonumber(ARGV[6]), ARGV[3])
  end
  redis.call("ZADD", P .. "ending", now + tonumber(ARGV[7]), ARGV[3])
end
redis.call("HINCRBY", key, "version", 1)
return row[2] or ""
