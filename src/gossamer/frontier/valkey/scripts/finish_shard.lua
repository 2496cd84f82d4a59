#!lua flags=allow-oom
-- Finish a run on one shard if all that was added here is done, and has been for as long as the run stays idle. From
-- then on the shard refuses additions until the home shard was asked, so that the sum over all shards stands still
-- while the home shard decides. A shard that was touched and not yet added to is finished too: the addition may be
-- under way. (Run: one life of a crawl, from its first request to its end. Home shard: the one that decides when a run
-- ends. Generation: number of the set of URLs that the crawl has seen.)
-- May be changed: arguments and reply, together with runs.py: each release loads its own scripts.
-- Must hold: `closed` only grows, and is stored before the reply. An addition that the home shard confirmed at that
-- version or earlier is refused (add_urls.lua); without that, a run could end with requests in its queues.
-- KEYS  1 prefix of the shard's keys
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 single: 1 where there is one shard
--       7 crawl (msgpack)  8 version of the home shard's record before anything was summed
-- Returns { } while there is work, else { the time, each spider that had requests here, how many of them were
--         dropped as expired, ... }; only the time where the shard is in a later run
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, d:{token}, ending, idle-until, n, old, opened, purge,
--         t:{token}, z:{token}
-- transition: queued -> dropped on stop
-- transition: later -> dropped on stop
-- include shard
-- include begin_run
-- include idle_until
local token, run = ARGV[3], tonumber(ARGV[4])
local crawl = crawl_of(token)
local order = compare_run(crawl, run, ARGV[5])
local time = string.format("%.3f", wall)
if order < 0 then
  return { time }
end
if order > 0 then
  crawl = begin_run({ token, run, ARGV[5], ARGV[6], ARGV[7] }, "")
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
