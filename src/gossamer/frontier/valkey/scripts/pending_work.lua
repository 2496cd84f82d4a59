#!lua flags=allow-oom
-- Operations on this shard that a process began and perhaps did not live to end, and whether dead workers and idle runs
-- are to be looked for. Tokens stand for crawls.
-- Must hold: what is returned stays listed here until the operation itself removes it, or a second death would lose it.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 how long an opened run may stay without a request, ms
--       4 ms after which a silent worker counts as dead, at least
-- Returns { tokens whose shards are to be told of a stop, tokens with nothing to do here, tokens opened long ago,
--         tokens that starve, tokens that their home shard has perhaps forgotten, 1 when queues are to be purged,
--         1 when the default policy is to be applied, the shard's id (nil: it lost its data),
--         1 when a worker is dead or counts as dead now, 1 when a run has been idle for long enough, the shard's time }
-- Touches (see keys.py) applying-policy, clock, dead, forgotten, idle, idle-until, meta, opened, patience, purge,
--         starving, stopping, workers
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
local idle = redis.call("ZRANGE", BASE .. "idle", 0, 99)
for _, token in ipairs(idle) do
  redis.call("ZADD", BASE .. "idle", now, token) -- so that the next call returns others
end
return {
  redis.call("HRANDFIELD", BASE .. "stopping", 100),
  idle,
  redis.call("ZRANGEBYSCORE", BASE .. "opened", "-inf", now - tonumber(ARGV[3]), "LIMIT", 0, 100),
  redis.call("SRANDMEMBER", BASE .. "starving", 100),
  redis.call("HRANDFIELD", BASE .. "forgotten", 100),
  redis.call("EXISTS", BASE .. "purge"),
  redis.call("EXISTS", BASE .. "applying-policy"),
  redis.call("HGET", BASE .. "meta", "id"),
  math.max(redis.call("EXISTS", BASE .. "dead"),
    #redis.call("ZRANGEBYSCORE", BASE .. "workers", "-inf", now - dead_after(tonumber(ARGV[4])), "LIMIT", 0, 1)),
  #redis.call("ZRANGEBYSCORE", BASE .. "idle-until", "-inf", now, "LIMIT", 0, 1),
  string.format("%.3f", now),
}
