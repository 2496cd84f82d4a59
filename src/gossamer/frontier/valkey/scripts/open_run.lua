#!lua
-- Join a crawl's run, or begin the next one, and note which shards it is about to touch. On the crawl's home shard,
-- which decides when a run ends. (Run: one life of a crawl, from its first request to its end. Part: what one spider
-- does of it. Token: 16 characters that stand for a crawl.) include/join_run.lua does the work.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 crawl (msgpack: appid, crawlid, pool, ...)
--       5 name of the request, or "": under a name, a fresh run is begun, or joined, once in an hour
--       6 shards about to be touched, "3,5", or ""  7 run expected, or 0 for whatever is running
--       8 age in ms of the process that joins: a run that finished within this time is not followed by another; or -1
--       9 1: begin a fresh run
--       then for each spider that something is submitted for: its name, when its part expires (epoch ms; 0: never)
-- Returns { "refused", state, and "part" where the parts of all these spiders have ended, not the crawl },
--         { "stopping" } when the last run has to be stopped on its shards first,
--         { "finished", run, generation, version, crawl } for a run that finished within the age, or that this request
--         was in, or { "ok", run, generation, version, crawl, spiders whose part has ended: "slink" ... }
-- Touches (see keys.py) apps, clock, crawls:{appid}, ending, expiries, fresh:{name}, h:{token}, opened,
--         running:{spider}|{appid}, running:|{appid}, stopping
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include join_run
return join_run({
  token = ARGV[3], packed_crawl = ARGV[4], name = ARGV[5], shards = ARGV[6], expected = tonumber(ARGV[7]),
  age = tonumber(ARGV[8]), fresh = ARGV[9] == "1", expiries = { unpack(ARGV, 10) },
})
