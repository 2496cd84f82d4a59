#!lua flags=allow-oom
-- Move a crawl's page budget (the most pages that it fetches) between shards. Each rebalance has a number, and a step
-- of an older one changes nothing. So two clients that rebalance at once, or one that died half-way, never grant a page
-- twice.
-- Words: a shard's quota is the number of pages that it may fetch; reserved are those that are leased or fetched; the
-- home shard is the one that keeps the state of the run (h:{token}).
-- Must hold: the order begin, return (all shards), grant, take (runs.py); no shard's quota falls below what it has
-- reserved, and all quotas together stay within max_pages.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 step  4 token (16 characters that stand for the crawl)  5 run
--       6 number of the rebalance
--   begin  (home shard)  -> a new number, or 0 when the run is over
--   return (each shard)  gives up what it has not reserved -> { quota it keeps, pages fetched, 1 if something waits }
--   grant  (home shard)  7 max_pages, then shard, quota it keeps, ... of all shards, the one that asks first
--                        -> the new quota of the first, or -1
--   take   (that shard)  7 quota -> 1
-- The next list is for a test, which compares it with the code; most of its keys are touched by the included files.
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app:{appid}, backlog, c:{token}, clock, d:{token}, egresses,
--         groups, h:{token}, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, w:{scope}, wait:{pool}, x:{domain}, z:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include starving
local step, token, run, number = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local MOST_GRANTED = 1000 -- pages at once; a quarter of what is free, if that is less, so that other shards get some

-- The steps of the home shard.
if step == "begin" or step == "grant" then
  local key = BASE .. "h:" .. token
  local current_run, state, latest = unpack(redis.call("HMGET", key, "run", "state", "rebalance"))
  if tonumber(current_run or 0) ~= run or state ~= "running" then
    return step == "begin" and 0 or -1
  end
  if step == "begin" then
    return redis.call("HINCRBY", key, "rebalance", 1)
  end
  if tonumber(latest or 0) ~= number then
    return -1
  end
  local kept = 0 -- by all shards together; from ARGV[8] on, shard and quota alternate
  for i = 8, #ARGV, 2 do
    kept = kept + tonumber(ARGV[i + 1])
  end
  local free, kept_by_first = tonumber(ARGV[7]) - kept, tonumber(ARGV[9])
  return kept_by_first + math.max(0, math.min(free, math.ceil(free / 4), MOST_GRANTED))
end

-- The steps of each shard that the run touched.
local crawl = crawl_of(token)
if not crawl or crawl.run ~= run then
  return step == "return" and { 0, 0, 0 } or 0
end
local last = tonumber(redis.call("HGET", crawl.key, "rebalance") or 0)
if step == "return" then
  if last < number then
    redis.call("HSET", crawl.key, "rebalance", number)
    if crawl.quota > crawl.reserved then
      crawl.quota = crawl.reserved
      redis.call("HSET", crawl.key, "Q", crawl.quota) -- Q: the quota (see crawls.lua)
    end
  end
  return { crawl.quota, crawl.fetched, redis.call("EXISTS", BASE .. "z:" .. token) }
end
local quota = tonumber(ARGV[7])
if last == number and quota > crawl.quota then
  redis.call("HSET", crawl.key, "Q", quota)
  crawl.quota = quota
  -- As many domains as one call may move; later calls and leases that end move the others. May be changed.
  end_starving_of_some(crawl, 100)
  write_all()
end
return 1 -- also if nothing changed: the step may be repeated
