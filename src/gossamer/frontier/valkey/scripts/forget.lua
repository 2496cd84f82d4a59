#!lua flags=allow-oom
-- Let a crawl that does not run be removed at once, as if its retention (the time for which an ended crawl is
-- remembered) were over: `sweep` then removes its keys. The caller calls this on every shard (server) of the crawl, and
-- on its home shard, which has the record of its state, last: until then, an interrupted removal can be repeated.
-- (Token: 16 characters that stand for a crawl. Pool: the workers of the crawl. Group: "<pool>|<spider>", for which
-- leases are asked.)
-- Must hold: nothing is changed while the crawl runs, or its requests would be lost.
-- KEYS  1 prefix of the shard's keys
-- ARGV  1, 2 see include/shard.lua  3 token  4 generation: number of the last seen-set
--       5 pool that only this crawl has, or ""
-- Returns 1, or 0 while the crawl runs
-- Touches (see keys.py) clock, ending, groups, h:{token}, once:{token}:{generation}, stop-markers, wait:{pool}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local token, pool = ARGV[3], ARGV[5]
if redis.call("HGET", BASE .. "h:" .. token, "state") == "running" then
  return 0
end
redis.call("ZADD", BASE .. "ending", 0, token)  -- ended at time 0: due for `sweep`
redis.call("ZREM", BASE .. "stop-markers", token)
redis.call("UNLINK", BASE .. "once:" .. token .. ":" .. ARGV[4])
if pool ~= "" then  -- no other crawl has this pool, so nothing else needs its groups
  redis.call("UNLINK", BASE .. "wait:" .. pool)
  for _, group in ipairs(redis.call("ZRANGE", BASE .. "groups", 0, -1)) do
    if string.sub(group, 1, #pool + 1) == pool .. "|" then
      redis.call("ZREM", BASE .. "groups", group)
    end
  end
end
return 1
