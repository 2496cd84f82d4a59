#!lua flags=allow-oom
-- End a run, or one spider's part of it, on one shard: nothing of it is leased or added from here on, and what waits is
-- counted as dropped at once. (Run: one life of a crawl, from its first request to its end. Part: what one
-- spider does of it. Token: 16 characters that stand for a crawl. Generation: number of the set of URLs that the crawl
-- has seen.) The steps:
--   1. Compare the run with the one that this shard is in. In a later run: nothing, this one is over. In an earlier
--      run, or in none: begin the run here and go on: an addition to it may be under way, and must find it ended.
--   2. Store the letter of the end, for the part or the run, and drop what waits.
--   3. Return how much was dropped, by this call and by earlier ones for the same stop and the same end.
-- Must hold: the letters, which are stored. Any process may repeat this call, also after another one died: the numbers
-- of a stop and its purged requests are stored so that a repetition returns the same sum. `stop_crawl` comes before it
-- on the home shard, `confirm_stop` only after it on all shards.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 single: 1 where there is one shard
--       7 crawl (msgpack)  8 state letter: s stopped, e expired, b page budget used up, f finished  9 spider, or "" for
--       the run 10 retention ms  11 number of the stop that this carries out, or 0
-- Returns { requests purged for that stop so far, by any client that told this shard of it, the same for this end by
--         any stop, token if the crawl is idle on this shard },
--         or { -1 } when the queues of an earlier run have to be purged first
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, d:{token}, ending, event, events, expiries,
--         failed:{token}, h:{token}, idle, idle-until, n, old, opened, purge, running:{spider}|{appid},
--         running:|{appid}, t:{token}, z:{token}
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- transition: queued -> dropped on expire
-- transition: later -> dropped on expire
-- transition: queued -> dropped on exhaust
-- transition: later -> dropped on exhaust
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include begin_run
-- include check_finished
local token, letter, spider, retention = ARGV[3], ARGV[8], ARGV[9], tonumber(ARGV[10])
local stop = ARGV[11]
local crawl = crawl_of(token)
local order = compare_run(crawl, tonumber(ARGV[4]), ARGV[5]) -- 1: a later run than the one here, -1: earlier
if order < 0 then
  return { 0, 0 }
end
if order > 0 then
  crawl = begin_run({ token, tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7] }, "")
  if not crawl then
    return { -1 }
  end
end
local purged
if spider ~= "" then
  redis.call("HSET", crawl.key, "parts", 1, "st:" .. spider, letter)
  crawl.parts = crawl.parts or {}
  crawl.parts[spider] = letter
  purged = drop_waiting(crawl, spider, END_REASONS[letter])
else
  -- A page budget that is used up ends only a running run. Any other end also replaces an earlier one.
  if crawl.state == "r" or (letter ~= "b" and crawl.state ~= letter) then
    redis.call("HSET", crawl.key, "st", letter)
    crawl.state = letter
  end
  purged = drop_waiting(crawl, nil, END_REASONS[letter])
  if letter ~= "b" then -- a page budget that is used up ends the run only when all shards agree
    redis.call("ZADD", BASE .. "ending", "NX", now + retention, token)
    redis.call("ZREM", BASE .. "idle", token)
    redis.call("ZREM", BASE .. "idle-until", token)
  end
end
-- What this end has dropped here, with earlier calls: for an expired part all that was dropped as expired, because
-- leases may have dropped some of it before; for a used-up budget nothing more is counted; else a counter is kept.
local purged_by_end
if letter == "e" and spider ~= "" then
  write_counters()
  local expired = redis.call("HMGET", crawl.key, "D:" .. spider .. ":expired", "D:" .. spider .. BROWSER .. ":expired")
  purged_by_end = (expired[1] or 0) + (expired[2] or 0)
elseif letter ~= "b" and purged > 0 then
  purged_by_end = redis.call("HINCRBY", crawl.key, "pu:" .. spider, purged)
else
  purged_by_end = tonumber(redis.call("HGET", crawl.key, "pu:" .. spider) or 0)
end
if stop ~= "0" then
  local last_stop, purged_before = unpack(redis.call("HMGET", crawl.key, "stop", "purged"))
  if last_stop == stop then
    purged = purged + tonumber(purged_before)
  end
  redis.call("HSET", crawl.key, "stop", stop, "purged", purged)
end
local idle = check_finished(token, retention, false) and token or nil
write_all()
return { purged, purged_by_end, idle }
