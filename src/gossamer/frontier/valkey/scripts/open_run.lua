#!lua
-- Join a crawl's run, or begin the next one; note which shards it is about to touch. On the crawl's home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 crawl (msgpack: appid, crawlid, pool, ...)  5 name of the request, or "": a fresh run is begun, or joined, once under a name, for an hour
--       6 shards about to be touched, "3,5", or ""  7 run expected, or 0 for whatever is running
--       8 age in ms of whoever joins: a run that finished within this time is not followed by another; or -1
--       9 1: begin a fresh run
--       then for each spider that something is submitted for: its name, when that expires (epoch ms; 0: never)
-- Returns { "refused", state, and "part" where the parts of all these spiders have ended, not the crawl },
--         { "halting" } when the last run has to be halted first,
--         { "finished", run, generation, version, crawl } for a run that finished within the age, or that this request was in, or
--         { "ok", run, generation, version, crawl, spiders that ended: "slink" ... }
-- include common
-- include opening
return open_run(ARGV[3], ARGV[4], ARGV[5], ARGV[9] == "1", ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8]), { unpack(ARGV, 10) })
