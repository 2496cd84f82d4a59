#!lua
-- Queue the URLs that the run has not seen. (Run: one life of a crawl, from its first request to its end. Generation:
-- number of the set of URLs that it has seen, which later runs continue.) include/add_urls.lua does the work.
-- Fixed: the answer of a named call, which is stored: another release may read it within the hour.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token (16 characters that stand for the crawl)  4 run  5 generation
--       6 single: 1 where there is one shard  7 crawl (msgpack)
--       8 digest of the terms (options of the submission)  9 limits (msgpack) and terms (opaque)
--       10 version at which the home shard confirmed the run just now, else 0
--       11 call: "", or a name under which the answer is kept for an hour, until a call with the same name and another
--       number  12 number of the call: repeated with the same number, it changes nothing and gets the same answer
--       13 spiders whose part has ended: "slink,eother"  14 retention ms
--       15 last: 1 when nothing more of this submission comes and nothing was new so far
--       16 seeds: 1 when no settlement will count what is dropped, so it is counted here, and the positions of
--       duplicates are returned too
--       then each batch (msgpack, one value after the other): spider, domain, priority, depth, unfiltered,
--       extended 1|0, and for each URL: fingerprint (decimal text), tail (URL, or what the client packed)
-- Returns { "closed" } when the run was finished here since then, or is over (the caller asks the home shard),
--         { "purging" } when the queues of an earlier run have to be purged first, or
--         { "ok", added, duplicates, shard became idle: 1|0, { positions of duplicates of seeds } or "" for none,
--           { position, reason, ... of every URL that was dropped and is not in the seen-set } or "",
--           1 when there are duplicates of seeds, and nothing was queued here under these terms before }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         call:{name}, clock, d:{token}, egresses, ending, event, events, expiries, failed:{token}, groups, h:{token},
--         idle, idle-until, n, off:{pool}|{spider}, old, opened, per-egress:{pool}|{spider}, policy, purge,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         running:{spider}|{appid}, running:|{appid}, s:{token}:{generation}:{bucket}, t:{token}, w:{scope},
--         wait:{pool}, x:{domain}, z:{token}
-- transition: new -> queued on add
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include add_urls
-- seldom: count_app_domain, group_parts, has_requested_rates, has_spider, is_seen, last_hit, look_up, power_of_life,
--         ready_key, remove_queue, set_ready, set_strings, spider_of, wake
-- seldom: begin_run, check_finished, idle_until, join_agenda, load_domains, set_only_fingerprint, split_bucket
-- seldom: due_in_turn, turn_of, turns_of
local addition = {
  token = ARGV[3], run = tonumber(ARGV[4]), generation = ARGV[5], single = ARGV[6], packed_crawl = ARGV[7],
  digest = ARGV[8], packed_terms = ARGV[9], confirmed = tonumber(ARGV[10]), call = ARGV[11], number = ARGV[12],
  stopped = ARGV[13], retention = tonumber(ARGV[14]), last = ARGV[15] == "1", seeds = ARGV[16] == "1",
}
local answer = add_batches(addition, 17, #ARGV)
write_all()
return answer
