#!lua flags=allow-oom
-- Mark a crawl, or one spider's part of it, as ended early. On the crawl's home shard, before `stop_shard` on its
-- shards: `stopping` notes that they are still to be told, so that any process can go on with it. The first end of a
-- part counts.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 state: stopped, expired or finished (given up, may run anew)
--       5 spider or ""  6 how long the crawl refuses submissions, ms  7 retention ms
-- Returns 1, or 0 where there is no such crawl, or it has finished by itself and no worker of its own waits for more
-- Touches (see keys.py) clock, ending, h:{token}, running:{spider}|{appid}, running:|{appid}, stop-markers, stopping,
--         wait:{pool}, workers
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include stopping
return end_early(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
