#!lua flags=allow-oom
-- Let a crawl that does not run be removed at once, as if its retention were over: `sweep` then removes its keys. To be
-- called on every shard of the crawl, on its home shard last: until then, an interrupted removal can be repeated.
-- (Token: 16 characters that stand for a crawl. Home shard: it has the crawl's home record, with its state. Group:
-- "<pool>|<spider>". Pool: the workers of the crawl.)
-- May be changed: arguments and reply, together with runs.py. Must hold: nothing is changed while the crawl runs.
-- KEYS  1 prefix of the shard's keys
-- ARGV  1, 2 see include/shard.lua  3 token  4 generation: number of the last seen-set
--       5 pool that only this crawl has, or ""
-- Returns 1, or 0 while the crawl runs
-- Touches (see keys.py) clock, ending, groups, h:{token}, once:{token}:{generation}, stop-markers, wait:{pool}
-- include shard
local token, pool = ARGV[3], ARGV[5]
if redis.call("HGET", BASE .. "h:" .. token, "state") == "running" then
  return 0
end
redis.call("ZADD", BASE .. "ending", 0, token)
redis.call("ZREM", BASE .. "stop-markers", token)
redis.call("UNLINK", BASE .. "once:" .. token .. ":" .. ARGV[4])
if pool ~= "" then
  redis.call("UNLINK", BASE .. "wait:" .. pool)
  for _, group in ipairs(redis.call("ZRANGE", BASE .. "groups", 0, -1)) do
    if string.sub(group, 1, #pool + 1) == pool .. "|" then
      redis.call("ZREM", BASE .. "groups", group)
    end
  end
end
return 1
