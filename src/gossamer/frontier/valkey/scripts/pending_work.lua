#!lua flags=allow-oom
-- Operations on this shard that a process began and perhaps did not live to end. Up to a hundred of each kind.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 how long an opened run may stay without a request, ms
-- Returns { tokens whose shards are to be told of a stop, tokens with nothing to do here, tokens opened long ago,
--         tokens that starve, 1 when queues are to be purged, 1 when the default policy is to be applied,
--         the shard's id (nil: it lost its data) }
-- Touches (see keys.py) applying-policy, clock, idle, meta, opened, purge, starving, stopping
-- include shard
local idle = redis.call("ZRANGE", BASE .. "idle", 0, 99)
for _, token in ipairs(idle) do
  redis.call("ZADD", BASE .. "idle", now, token) -- so that the next call returns others
end
return {
  redis.call("HRANDFIELD", BASE .. "stopping", 100),
  idle,
  redis.call("ZRANGEBYSCORE", BASE .. "opened", "-inf", now - tonumber(ARGV[3]), "LIMIT", 0, 100),
  redis.call("SRANDMEMBER", BASE .. "starving", 100),
  redis.call("EXISTS", BASE .. "purge"),
  redis.call("EXISTS", BASE .. "applying-policy"),
  redis.call("HGET", BASE .. "meta", "id"),
}
