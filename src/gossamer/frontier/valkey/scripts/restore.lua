#!lua
-- Enter requests that were done before the frontier lost them: a run that is filled again from the records of its crawl.
-- (Run: one life of a crawl, from its first request to its end. Token: 16 characters that stand for a crawl.)
-- Must hold: a request is counted in the call that marks its fingerprint, so that a call may be repeated, and a whole
-- rebuild as well; and the run is held open from the first call to the last one, because without requests that wait it
-- would be finished in between. The hold is the field `rebuild` of c:{token}, which counts as one added request.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 single: 1 where there is one shard
--       7 crawl (msgpack)  8 digest of the terms (options of the submission)  9 limits (msgpack) and terms (opaque)
--       10 version at which the home shard confirmed the run just now, else 0
--       11 spiders whose part has ended: "slink,eother"  12 retention ms
--       13 step: "hold" (the run, on one shard), "enter" (requests), or "release" (what was held)
--       then for "enter" each group (msgpack): { spider, domain, fingerprint, counter, priority, depth, URL, ... }. The
--       counter is the field of c:{token} that counts the request as done; "": none does, its fingerprint is only marked.
--       The URL is that of a failed request which is kept for retry_failed.lua; "": it is not kept
-- Returns { "closed" } when the run is over, { "purging" } when the queues of an earlier run have to be purged first, or
--         { "ok", requests that were entered, shard became idle: 1|0 }
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, d:{token}, ending, event, events, expiries,
--         failed:{token}, h:{token}, idle, idle-until, n, old, opened, purge, running:{spider}|{appid}, running:|{appid},
--         s:{token}:{generation}:{bucket}, t:{token}, z:{token}
-- transition: new -> fetched on fetched_before
-- transition: new -> failed on failed_before
-- transition: new -> dropped on dropped_before
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include assets
-- include mark_seen
-- include shares
-- include terms
-- include enter_run
-- include failures
-- include check_finished
local addition = {
  token = ARGV[3], run = tonumber(ARGV[4]), generation = ARGV[5], single = ARGV[6], packed_crawl = ARGV[7],
  digest = ARGV[8], packed_terms = ARGV[9], confirmed = tonumber(ARGV[10]), stopped = ARGV[11], headers = {},
}
local retention, step, FIELDS = tonumber(ARGV[12]), ARGV[13], 5
local crawl, refusal = crawl_for(addition)
if not crawl then
  return refusal
end
addition.limits = unpack_terms(addition.packed_terms)

-- Counts a request as done. `counter`: see ARGV above.
local function count_restored(spider, domain, counter)
  crawl.added = crawl.added + 1
  count_crawl(crawl.token, "a:" .. spider, 1)
  count_done(crawl, counter, 1)
  if spider == ASSETS or string.sub(counter, 1, 2) ~= "f:" then
    return
  end
  if crawl.max_pages then
    crawl.fetched, crawl.reserved = crawl.fetched + 1, crawl.reserved + 1
    count_crawl(crawl.token, "Y", 1)
    count_crawl(crawl.token, "R", 1)
  end
  if addition.limits.domain_max_pages then
    local share = share_of(crawl.token, domain)
    share.row[RESERVED], share.row[FETCHED], share.dirty = share.row[RESERVED] + 1, share.row[FETCHED] + 1, true
  end
end

-- Marks and counts the requests of a group. Returns how many were not known.
local function enter(group)
  local spider, domain, entered = group[1], group[2], 0
  for i = 3, #group, FIELDS do
    local fingerprint, counter, priority, depth, url = unpack(group, i, i + FIELDS - 1)
    if mark_seen(crawl, fingerprint) and counter ~= "" then
      entered = entered + 1
      count_restored(spider, domain, counter)
      if url ~= "" then
        keep_failed(crawl, counter, { priority, spider, domain, entry_header(crawl, addition, 0, depth) .. url })
      end
    end
  end
  return entered
end

local entered, idle = 0, 0
if step == "hold" then
  if redis.call("HSETNX", crawl.key, "rebuild", 1) == 1 then
    crawl.added = crawl.added + 1
  end
elseif step == "enter" then
  for i = 14, #ARGV do
    entered = entered + enter(cmsgpack.unpack(ARGV[i]))
  end
  grow_seen(crawl)
  if crawl.max_pages and crawl.quota < crawl.reserved then -- its own pages count in the budget that shards share
    redis.call("HSET", crawl.key, "Q", crawl.reserved)
    crawl.quota = crawl.reserved
  end
else
  if redis.call("HDEL", crawl.key, "rebuild") == 1 then
    crawl.added = crawl.added - 1
  end
  idle = check_finished(crawl.token, retention, false) and 1 or 0
end
write_all()
return { "ok", entered, idle }
