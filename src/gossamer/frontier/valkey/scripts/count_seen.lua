#!lua flags=allow-oom
-- Return how many of the seeds (submitted URLs) of a repeated submission a finished run has seen. (Token: 16 characters
-- that stand for a crawl. Generation: number of the set of URLs that it has seen. Terms: the options of one
-- submission.) Only reads.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 digest of the terms
--       7 limits (msgpack) and terms (opaque), then the fingerprints (64-bit hashes of the requests, decimal)
-- Returns { how many of them the run has seen here, 1 when something was queued here under these terms }
-- Touches (see keys.py) c:{token}, clock, s:{token}:{generation}:{bucket}, t:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include seen
-- include run_order
-- include known_terms
local crawl = crawl_of(ARGV[3])
if not crawl or compare_run(crawl, tonumber(ARGV[4]), ARGV[5]) ~= 0 then
  return { 0, 0 }
end
load_seen(crawl)
local count = 0
for i = 8, #ARGV do
  if is_seen(crawl, ARGV[i]) then
    count = count + 1
  end
end
return { count, known_terms(crawl, ARGV[6], ARGV[7]) and 1 or 0 }
