#!lua flags=allow-oom
-- Decide that a run is finished, once: only if nothing joined it since its version was read. On the home shard.
-- Must hold: run and version are compared in the step that ends the run, or it would be finished while requests are
-- added to it. (Run: one life of a crawl, from its first request to its end. Token: 16 characters that stand for a
-- crawl.)
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 version  6 retention ms
--       7 the latest time by the clocks of the shards that the run touched, ms
--       then for each spider that had requests: its name, how many of them were dropped as expired
-- Returns 1 decided now, 0 not
-- Touches (see keys.py) clock, ending, event, events, expiries, h:{token}, n, running:{spider}|{appid},
--         running:|{appid}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include finishing
local state, run, version = unpack(redis.call("HMGET", BASE .. "h:" .. ARGV[3], "state", "run", "version"))
if state ~= "running" or run ~= ARGV[4] or (version or "0") ~= ARGV[5] then
  return 0
end
end_run(ARGV[3], math.max(wall, tonumber(ARGV[7])), tonumber(ARGV[6]), { unpack(ARGV, 8) })
return 1
