#!lua flags=allow-oom
-- Mark a crawl, or one spider's part of it, as ended early. On the crawl's home shard, before its shards are halted;
-- `halting` remembers that they are still to be told, whoever comes to do it. How something ended first, counts.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 state: stopped, expired or finished (given up, may run anew)  5 spider or ""
--       6 how long the mark is kept, ms  7 retention ms
-- Returns 1, or 0 when there is no such crawl
-- include common
-- include ends
return end_early(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]))
