#!lua flags=allow-oom
-- What somebody began on this shard and perhaps did not live to end. Up to a hundred of each kind.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 how long an opened run may stay without a request, ms
-- Returns { tokens to halt, tokens with nothing to do here, tokens opened long ago, tokens that starve,
--         1 when queues are to be purged, 1 when domains are to be rescored, the shard's id (nil: it lost its data) }
-- include common
local idle = redis.call("ZRANGE", P .. "idle", 0, 99)
for _, token in ipairs(idle) do
  redis.call("ZADD", P .. "idle", now, token) -- so that the next call looks at others
end
return {
  redis.call("HRANDFIELD", P .. "halting", 100),
  idle,
  redis.call("ZRANGEBYSCORE", P .. "opened", "-inf", now - tonumber(ARGV[3]), "LIMIT", 0, 100),
  redis.call("SRANDMEMBER", P .. "starving", 100),
  redis.call("EXISTS", P .. "purge"),
  redis.call("EXISTS", P .. "rescoring"),
  redis.call("HGET", P .. "meta", "id"),
}
