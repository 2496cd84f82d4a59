#!lua flags=allow-oom
-- How many seeds that are submitted again a finished run has seen.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 generation  6 digest of the terms  7 limits (msgpack) and terms (opaque)
--       then the fingerprints (decimal)
-- Returns { how many of them the run has seen here, 1 when something was queued here under these terms }
-- Touches (see keys.py) c:{token}, clock, s:{token}:{generation}:{bucket}, t:{token}
-- include shard
-- include seen
-- include run_order
-- include known_terms
local crawl = crawl_of(ARGV[3])
if not crawl or compare_run(crawl, tonumber(ARGV[4]), ARGV[5]) ~= 0 then
  return { 0, 0 }
end
local count = 0
for i = 8, #ARGV do
  if is_seen(crawl, ARGV[i]) then
    count = count + 1
  end
end
return { count, known_terms(crawl, ARGV[6], ARGV[7]) and 1 or 0 }
