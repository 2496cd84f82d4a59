#!lua flags=allow-oom
-- Mark a crawl, or one spider's part of it, as ended early. On the crawl's home shard, before its shards are halted;
-- `halting` remembers that they are still to be told, whoever comes to do it.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 state: stopped, expired or finished (given up, may run anew)  5 spider or ""
--       6 how long the mark is kept, ms  7 retention ms
-- Returns 1, or 0 when there is no such crawl
-- include common
local token, state, spider = ARGV[3], ARGV[4], ARGV[5]
local key = P .. "h:" .. token
local before = redis.call("HGET", key, "state")
if not before then
  return 0
end
if spider ~= "" then
  redis.call("HSET", key, "st:" .. spider, string.sub(state, 1, 1))
elseif before == "running" or (before == "finished" and state ~= "finished") then
  redis.call("HSET", key, "state", state, "ended", now)
  if state ~= "finished" then
    redis.call("ZADD", P .. "marks", now + tonumber(ARGV[6]), token)
  end
  redis.call("ZADD", P .. "ending", now + tonumber(ARGV[7]), token)
end
local version = redis.call("HINCRBY", key, "version", 1)
redis.call("HSET", key, "stop", version)
redis.call("HSET", P .. "halting", token, version)
return 1
