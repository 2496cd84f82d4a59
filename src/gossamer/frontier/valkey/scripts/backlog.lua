#!lua flags=allow-oom
-- Return the number of requests that wait in queues on this shard, by pool (group of workers) and spider. Only reads.
-- Domains are counted in the sets of those with work (places.lua), which costs the same for any number of them.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua
-- Returns { "<pool>|<spider>", requests, domains, ... }
-- Touches (see keys.py) backlog, clock, off:{pool}|{spider}, per-egress:{pool}|{spider}, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include places
local row, answer = redis.call("HGETALL", BASE .. "backlog"), {}
for i = 1, #row, 2 do
  local group, domains = row[i], 0
  for place = 1, PLACES do
    domains = domains + redis.call(place <= PER_EGRESS and "SCARD" or "ZCARD", place_key(group, place))
  end
  answer[#answer + 1] = group
  answer[#answer + 1] = row[i + 1]
  answer[#answer + 1] = domains
end
return answer
