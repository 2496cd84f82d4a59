#!lua
-- Queue the URLs of many submissions, each as `add` does, in one step.
-- Must hold: the batches are as `add` takes them; include/add_urls.lua reads both.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 single: 1 where there is one shard  4 retention ms
--       then for each: token (16 characters that stand for its crawl), run, generation, crawl (msgpack), digest of
--       the terms (options of the submission), limits (msgpack) and terms (opaque), version at which the home shard
--       confirmed the run just now, spiders whose part has ended: "slink,eother", number of its batches, and those, as
--       in `add`
-- Returns for each what `add` does; a submission that is "closed" or "purging" has changed nothing
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
local single, retention, answers, i = ARGV[3], tonumber(ARGV[4]), {}, 5
while i <= #ARGV do
  local first, final = i + 9, i + 8 + tonumber(ARGV[i + 8])
  local addition = {
    token = ARGV[i], run = tonumber(ARGV[i + 1]), generation = ARGV[i + 2], single = single, packed_crawl = ARGV[i + 3],
    digest = ARGV[i + 4], packed_terms = ARGV[i + 5], confirmed = tonumber(ARGV[i + 6]), call = "", number = "",
    stopped = ARGV[i + 7], retention = retention, last = true, seeds = true,
  }
  answers[#answers + 1] = add_batches(addition, first, final)
  i = final + 1
end
write_all()
return answers
