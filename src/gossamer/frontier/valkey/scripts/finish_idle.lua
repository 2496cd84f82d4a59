#!lua flags=allow-oom
-- Finish the runs (each one life of a crawl) that have had nothing to do on this shard for as long as their crawl asks.
-- Must hold: a run that leaves `idle-until` here is checked in the same call; check_finished lists it elsewhere where
-- other shards have to be asked.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most runs a call  4 retention ms
-- Returns { number of runs that were due, tokens of those that other shards have to be asked about ... }
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, ending, event, events, expiries, h:{token}, idle,
--         idle-until, n, running:{spider}|{appid}, running:|{appid}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include check_finished
local due = redis.call("ZRANGEBYSCORE", BASE .. "idle-until", "-inf", now, "LIMIT", 0, tonumber(ARGV[3]))
local tokens = {}
for _, token in ipairs(due) do
  redis.call("ZREM", BASE .. "idle-until", token)
  if check_finished(token, tonumber(ARGV[4]), true) then
    tokens[#tokens + 1] = token
  end
end
write_all()
return { #due, unpack(tokens) }
