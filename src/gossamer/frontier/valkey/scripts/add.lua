#!lua
-- Queue what the run has not seen: dedupe and enqueue in one step.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 generation  6 single: 1 where there is one shard  7 crawl (opaque)  8 digest of the terms
--       9 limits (msgpack) and terms (opaque)  10 version at which the home shard confirmed the run just now, else 0
--       11 call: "", or a name under which the answer is kept for an hour, until a call with the same name and another
--       number  12 number of the call: repeated with the same one, it changes nothing and gets the same answer
--       13 stopped spiders: "slink,eother"  14 retention ms
--       15 last: 1 when nothing more of this submission comes and nothing was new so far
--       16 seeds: 1 when no settlement will count what is not added: it is counted here. The positions of duplicates
--       are answered too
--       then for each batch: spider, domain, priority, depth, unfiltered 1|0, extended 1|0, count,
--       and for each URL: fingerprint (decimal), tail (URL, or what the client packed)
-- Returns { "closed" } when the run was closed here since then, or is over (ask the home shard), { "purging" } when the
--         last run has to be purged first, or
--         { "ok", added, duplicates, shard became idle: 1|0, { positions of duplicates of seeds },
--           { position, reason, ... of every URL that was dropped: it is not in the seen-set },
--           1 when there are duplicates of seeds, and nothing was queued here under these terms before }
-- include common
-- include adding
local answer = add_batches(ARGV[3], tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10]),
  ARGV[11], ARGV[12], ARGV[13], tonumber(ARGV[14]), ARGV[15] == "1", ARGV[16] == "1", 17, #ARGV)
write_all()
return answer
