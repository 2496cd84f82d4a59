#!lua flags=allow-oom
-- Remove what has outlived its retention, some keys at a time; to be repeated until all is done. A process may die
-- between two calls: each list names what is left. (Token: 16 characters that stand for a crawl. Group:
-- "<pool>|<spider>". Egress: the address that requests leave from.)
-- WEEK must stay well above the hour after which `lease` renews the time of an egress. It is also the time for which a
-- death counts (reclaim.lua).
-- Must hold: a crawl's row in `ending` goes last, after its seen-set, and only once its queues are purged: they are
-- found through d:{token}, which goes with the crawl.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most keys a call  4 retention ms
-- Returns { 1 when there is more to do now, else 0; number of events that were given up since the last call }
-- Touches (see keys.py) apps, c:{token}, clock, crawls:{appid}, d:{token}, deaths, egresses, ending, event, events,
--         expiries, failed:{token}, forgotten, groups, h:{token}, idle, idle-until, later, n, off:{pool}|{spider}, old,
--         opened,
--         per-egress:{pool}|{spider}, purge, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         running:{spider}|{appid}, running:|{appid}, s:{token}:{generation}:{bucket}, starving, stop-markers,
--         stopping, t:{token}, z:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include end_reasons
-- include places
-- include unlist
-- include expiries
local most = tonumber(ARGV[3])
local HOUR, WEEK = 3600000, 604800000

-- Events that no publisher has confirmed, and those that were too many (events.lua).
local events_lost = tonumber(redis.call("HGET", BASE .. "n", "events_lost") or 0)
if events_lost > 0 then
  redis.call("HDEL", BASE .. "n", "events_lost")
end
local old_events = redis.call("ZRANGEBYSCORE", BASE .. "events", "-inf", wall - tonumber(ARGV[4]), "LIMIT", 0, 1000)
if #old_events > 0 then
  redis.call("ZREM", BASE .. "events", unpack(old_events))
  redis.call("HDEL", BASE .. "event", unpack(old_events))
  events_lost = events_lost + #old_events
end

-- Removes a crawl's home record, and takes the crawl from the lists. Does nothing where this is not its home.
local function remove_home(token)
  local key = BASE .. "h:" .. token
  local packed_crawl = redis.call("HGET", key, "crawl")
  if packed_crawl then
    unlist_running(token)
    local appid = app_of(packed_crawl)
    local list = BASE .. "crawls:" .. appid
    if redis.call("SREM", list, token) == 1 and redis.call("EXISTS", list) == 0 then
      redis.call("ZREM", BASE .. "apps", appid)
    end
    forget_expiries(token)
    redis.call("UNLINK", key)
  end
end

-- Removes buckets of a seen-set from the last one down. Returns how many are left.
local function remove_buckets(token, generation, buckets)
  local keys = {}
  while buckets > 0 and #keys < most do
    buckets = buckets - 1
    keys[#keys + 1] = BASE .. "s:" .. token .. ":" .. generation .. ":" .. buckets
  end
  if #keys > 0 then
    redis.call("UNLINK", unpack(keys))
  end
  most = most - #keys
  return buckets
end

-- Seen-sets that fresh runs left behind.
while most > 0 do
  local row = redis.call("LPOP", BASE .. "old")
  if not row then
    break
  end
  local token, generation, buckets = cmsgpack.unpack(row)
  local left = remove_buckets(token, generation, buckets)
  if left > 0 then
    redis.call("RPUSH", BASE .. "old", cmsgpack.pack(token, generation, left))
  end
end

-- Crawls. Their queues are purged before, because they are found through what is removed here.
for _, token in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "ending", "-inf", now, "LIMIT", 0, 1000)) do
  if most <= 0 then
    break
  end
  local key = BASE .. "c:" .. token
  local generation, buckets = unpack(redis.call("HMGET", key, "gen", "b"))
  local left = redis.call("ZSCORE", BASE .. "purge", token) and 1 or 0 -- not 0: the crawl cannot be removed yet
  if generation and left == 0 then
    left = remove_buckets(token, generation, tonumber(buckets or 1))
    redis.call("HSET", key, "b", left)
  end
  if left == 0 then
    redis.call("UNLINK", key, BASE .. "t:" .. token, BASE .. "d:" .. token, BASE .. "z:" .. token,
      BASE .. "failed:" .. token)
    redis.call("ZREM", BASE .. "ending", token)
    redis.call("ZREM", BASE .. "idle", token)
    redis.call("ZREM", BASE .. "idle-until", token)
    redis.call("ZREM", BASE .. "opened", token)
    redis.call("HDEL", BASE .. "stopping", token)
    redis.call("HDEL", BASE .. "forgotten", token)
    if not redis.call("ZSCORE", BASE .. "stop-markers", token) then
      remove_home(token)
    end
    most = most - 1
  end
end

-- Requests to be queued later, of crawls that are over. A lease takes everything else that is due.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "later", "-inf", now, "LIMIT", 0, 1000)) do
  local token, run, _, spider = cmsgpack.unpack(member)
  local crawl = crawl_of(token)
  if not crawl or crawl.run ~= run or end_reason(crawl, spider) then
    redis.call("ZREM", BASE .. "later", member)
  end
end

-- Stopped and expired crawls that may be submitted again.
for _, token in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "stop-markers", "-inf", now, "LIMIT", 0, 1000)) do
  redis.call("ZREM", BASE .. "stop-markers", token)
  remove_home(token)
end

-- Crawls without a starved domain.
for _, token in ipairs(redis.call("SRANDMEMBER", BASE .. "starving", 100)) do
  if redis.call("EXISTS", BASE .. "z:" .. token) == 0 then
    redis.call("SREM", BASE .. "starving", token)
  end
end

-- Groups to which nothing was added for an hour, and where nothing waits. The next addition lists them again.
for _, group in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "groups", "-inf", now - HOUR, "LIMIT", 0, 100)) do
  local keys = {}
  for place = 1, PLACES do
    keys[place] = place_key(group, place)
  end
  if redis.call("EXISTS", unpack(keys)) == 0 then
    redis.call("ZREM", BASE .. "groups", group)
  else
    redis.call("ZADD", BASE .. "groups", now, group)
  end
end

-- Deaths that count no longer.
redis.call("ZREMRANGEBYSCORE", BASE .. "deaths", "-inf", now - WEEK)

-- Egress addresses through which no worker leased for a week, with their views of the domains. A score is negative
-- while an address is being enrolled.
for _, egress in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "egresses", WEEK - now, now - WEEK, "LIMIT", 0, 1)) do
  for _, group in ipairs(list_groups()) do
    for band = 1, BANDS do
      redis.call("UNLINK", ready_key(group, band, egress))
    end
  end
  redis.call("ZREM", BASE .. "egresses", egress)
end
return { most <= 0 and 1 or 0, events_lost }
