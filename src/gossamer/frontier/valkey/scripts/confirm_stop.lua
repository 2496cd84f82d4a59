#!lua flags=allow-oom
-- All shards of a crawl know what ended: nothing is left to tell them, unless more was stopped meanwhile; now the world
-- is to be told. On the home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 version of the home shard's record when it was read
--       then for each end: spider or "", how many waiting requests were purged for it
-- Returns 1, or 0 when there is more to tell
-- include common
-- include events
if tonumber(redis.call("HGET", P .. "halting", ARGV[3]) or 0) > tonumber(ARGV[4]) then
  return 0
end
redis.call("HDEL", P .. "halting", ARGV[3])
for i = 5, #ARGV, 2 do
  local field = "ev:" .. ARGV[i]
  local kind = redis.call("HGET", P .. "h:" .. ARGV[3], field)
  if kind then
    redis.call("HDEL", P .. "h:" .. ARGV[3], field)
    tell(ARGV[3], kind, ARGV[i], tonumber(ARGV[i + 1]))
  end
end
return 1
