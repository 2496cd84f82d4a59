#!lua
-- Begin the run of a crawl that was exported from another frontier, with its number and its generation. On the crawl's
-- home shard, which decides when a run ends. (Run: one life of a crawl, from its first request to its end. Generation:
-- number of the set of URLs that it has seen. Token: 16 characters that stand for a crawl.)
-- Must hold: a crawl that the frontier has is left alone, unless this same export has begun it; ids of requests contain
-- run and generation, so both stay.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 crawl (msgpack)  7 id of the export
--       8 when the run began, epoch ms, or ""  then for each spider with a part: its name, when it expires (epoch ms; 0:
--       never)
-- Returns { "refused", state } where there is another crawl of this name, else what open_run returns
-- Touches (see keys.py) apps, clock, crawls:{appid}, ending, expiries, fresh:{name}, h:{token}, opened,
--         running:{spider}|{appid}, running:|{appid}, stopping
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include join_run
local token, run, generation, packed_crawl, export, started = unpack(ARGV, 3, 8)
local key = BASE .. "h:" .. token
local state, known = unpack(redis.call("HMGET", key, "state", "export"))
if state and known ~= export then
  return { "refused", state }
end
if not state then -- as if the run before it had ended
  redis.call("HSET", key, "state", "finished", "run", run - 1, "gen", generation, "crawl", packed_crawl,
    "export", export)
end
local reply = join_run({
  token = token, packed_crawl = packed_crawl, name = "", shards = "", expected = 0, age = -1, fresh = false,
  expiries = { unpack(ARGV, 9) },
})
if started ~= "" then
  redis.call("HSET", key, "started", started)
end
return reply
