#!lua flags=allow-oom
-- Close a run on one shard, if the run has nothing left to do there.
-- Run: one life of a crawl, from its first request to its end. A crawl's requests lie on several shards, and its home
-- shard decides when a run ends: it lets every shard close the run, and finishes it if no request was added meanwhile.
-- While the run is closed here, this shard refuses additions until the client has asked the home shard again.
-- Generation: number of the set of URLs that the crawl has seen. Token: 16 characters that stand for a crawl.
--
-- The steps:
--   1. Compare the run with the one that this shard is in. In a later run: return only the time, for this one is over.
--      In an earlier run, or in none: begin the run here, without requests, and go on. The home record names this shard
--      although nothing has been added here yet: an addition may be under way, and must find the run closed.
--   2. Return { } if requests are not done, or if the run has not been idle for as long as it was asked to stay idle.
--   3. Set the state to "f" (finished: closed here). Only from "r" (running) and "b" (page budget used up): "s"
--      (stopped) and "e" (expired) stay, as they tell why later requests are dropped.
--   4. Store which version of the home record the caller had read (`closed`).
-- Must hold: `closed` only grows, and is stored before the reply. An addition that the home shard confirmed at that
-- version or earlier is refused (add_urls.lua); without that, a run could end with requests in its queues.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 single: 1 where there is one shard
--       7 crawl (msgpack)  8 version of the home record, as the caller read it before it summed the counters of all
--       shards
-- Returns { } while there is work, else { this server's time, epoch ms; then for each spider that had requests here its
--         name and how many of them were dropped as expired }
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, d:{token}, ending, failed:{token}, idle, idle-until, n,
--         old, opened, purge, t:{token}, z:{token}
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include begin_run
-- include idle_until
local token, run = ARGV[3], tonumber(ARGV[4])
local crawl = crawl_of(token)
local order = compare_run(crawl, run, ARGV[5]) -- 1: the caller's run is later than the one here, -1: earlier, 0: same
local time = string.format("%.3f", wall)
if order < 0 then
  return { time }
end
if order > 0 then
  crawl = begin_run({ token, run, ARGV[5], ARGV[6], ARGV[7] }, "") -- nil while an earlier run's queues are deleted
  if crawl then -- maintenance ends the run here, if the caller dies before it has
    redis.call("ZADD", BASE .. "idle", now, token)
  end
end
if not crawl or crawl.added ~= crawl.done or idle_until(crawl) > now then
  return {}
end
if crawl.state == "r" or crawl.state == "b" then
  redis.call("HSET", crawl.key, "st", "f")
end
if tonumber(ARGV[8]) > tonumber(redis.call("HGET", crawl.key, "closed") or 0) then
  redis.call("HSET", crawl.key, "closed", ARGV[8])
end
return { time, unpack(spiders_of(crawl)) }
