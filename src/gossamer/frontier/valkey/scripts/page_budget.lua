#!lua flags=allow-oom
-- Move a crawl's page budget between shards. A rebalance has a number; a step of an older one changes nothing, so two
-- clients at it, or one that died half-way, never grant a page twice.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 step  4 token  5 run  6 number of the rebalance
--   begin  (home shard)  -> a new number, or 0 when the run is over
--   return (each shard)  gives up what it has not handed out -> { quota it keeps, pages fetched, 1 if something waits }
--   grant  (home shard)  7 max_pages, then shard, quota it keeps, ... of all shards, the one that asks first
--                        -> the new quota of the first, or -1
--   take   (that shard)  7 quota -> 1
-- include common
-- include throttle
-- include queues
local step, token, run, number = ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
if step == "begin" or step == "grant" then
  local key = P .. "h:" .. token
  local row = redis.call("HMGET", key, "run", "state", "rebalance")
  if tonumber(row[1] or 0) ~= run or row[2] ~= "running" then
    return step == "begin" and 0 or -1
  end
  if step == "begin" then
    return redis.call("HINCRBY", key, "rebalance", 1)
  end
  if tonumber(row[3] or 0) ~= number then
    return -1
  end
  local booked = 0
  for i = 8, #ARGV, 2 do
    booked = booked + tonumber(ARGV[i + 1])
  end
  local free = tonumber(ARGV[7]) - booked
  return tonumber(ARGV[9]) + math.max(0, math.min(free, math.ceil(free / 4), 1000))
end
local crawl = crawl_of(token)
if not crawl or crawl.run ~= run then
  return step == "return" and { 0, 0, 0 } or 0
end
local key = P .. "c:" .. token
local last = tonumber(redis.call("HGET", key, "rebalance") or 0)
if step == "return" then
  if last < number then
    redis.call("HSET", key, "rebalance", number)
    if crawl.quota > crawl.reserved then
      crawl.quota = crawl.reserved
      redis.call("HSET", key, "Q", crawl.quota)
    end
  end
  return { crawl.quota, crawl.fetched, redis.call("EXISTS", P .. "z:" .. token) }
end
local quota = tonumber(ARGV[7])
if last == number and quota > crawl.quota then
  redis.call("HSET", key, "Q", quota)
  crawl.quota = quota
  unstarve_some(crawl, 100)
  write_all()
end
return 1
