#!lua flags=allow-oom
-- Remove what has outlived its retention, some keys at a time; repeat until done.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most keys a call  4 retention ms
-- Returns 1 when there is more to do now, else 0
-- include common
-- include throttle
-- include queues
-- include events
-- include ends
-- include known
local most = tonumber(ARGV[3])

-- Removes a crawl's home record and where it is listed. Nothing where this is not its home.
local function remove_home(token)
  local blob = redis.call("HGET", P .. "h:" .. token, "crawl")
  if blob then
    unlist_running(token)
    unnote_crawl(token, blob)
    forget_expiries(token)
    redis.call("UNLINK", P .. "h:" .. token)
  end
end

forget_events(wall - tonumber(ARGV[4]))

-- Removes buckets from the last one down; returns how many are left.
local function remove_buckets(token, gen, buckets)
  local keys = {}
  while buckets > 0 and #keys < most do
    buckets = buckets - 1
    keys[#keys + 1] = P .. "s:" .. token .. ":" .. gen .. ":" .. buckets
  end
  if #keys > 0 then
    redis.call("UNLINK", unpack(keys))
  end
  most = most - #keys
  return buckets
end

-- Seen-sets that a fresh run left behind.
while most > 0 do
  local row = redis.call("LPOP", P .. "old")
  if not row then
    break
  end
  local token, gen, buckets = cmsgpack.unpack(row)
  local left = remove_buckets(token, gen, buckets)
  if left > 0 then
    redis.call("RPUSH", P .. "old", cmsgpack.pack(token, gen, left))
  end
end

for _, token in ipairs(redis.call("ZRANGEBYSCORE", P .. "ending", "-inf", now, "LIMIT", 0, 1000)) do
  if most <= 0 then
    break
  end
  local row = redis.call("HMGET", P .. "c:" .. token, "gen", "b")
  local left = redis.call("ZSCORE", P .. "purge", token) and 1 or 0 -- its queues are found through what ends here
  if row[1] and left == 0 then
    left = remove_buckets(token, row[1], tonumber(row[2] or 1))
    redis.call("HSET", P .. "c:" .. token, "b", left)
  end
  if left == 0 then
    redis.call("UNLINK", P .. "c:" .. token, P .. "t:" .. token, P .. "d:" .. token, P .. "z:" .. token)
    redis.call("ZREM", P .. "ending", token)
    redis.call("ZREM", P .. "idle", token)
    redis.call("ZREM", P .. "resting", token)
    redis.call("ZREM", P .. "opened", token)
    redis.call("HDEL", P .. "halting", token)
    if not redis.call("ZSCORE", P .. "marks", token) then
      remove_home(token)
    end
    most = most - 1
  end
end
-- Retries of what is over; everything else that is due a lease takes.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", P .. "later", "-inf", now, "LIMIT", 0, 1000)) do
  local token, run, _, spider = cmsgpack.unpack(member)
  local crawl = crawl_of(token)
  if not crawl or crawl.run ~= run or ended(crawl, spider) then
    redis.call("ZREM", P .. "later", member)
  end
end
for _, token in ipairs(redis.call("ZRANGEBYSCORE", P .. "marks", "-inf", now, "LIMIT", 0, 1000)) do
  redis.call("ZREM", P .. "marks", token)
  remove_home(token)
end
for _, token in ipairs(redis.call("SRANDMEMBER", P .. "starving", 100)) do
  if redis.call("EXISTS", P .. "z:" .. token) == 0 then
    redis.call("SREM", P .. "starving", token)
  end
end

-- A home is forgotten when nothing was added to it for an hour and nothing waits there; the next addition remembers it.
for _, home in ipairs(redis.call("ZRANGEBYSCORE", P .. "homes", "-inf", now - 3600000, "LIMIT", 0, 100)) do
  local keys = { P .. "off:" .. home, P .. "roster:" .. home }
  for band = 1, BANDS do
    keys[#keys + 1] = ready_key(home, band)
  end
  if redis.call("EXISTS", unpack(keys)) == 0 then
    redis.call("ZREM", P .. "homes", home)
  else
    redis.call("ZADD", P .. "homes", now, home)
  end
end

-- An egress that nobody leased through for a week is forgotten with its view of the domains. Negative: being enrolled.
local WEEK = 604800000
for _, egress in ipairs(redis.call("ZRANGEBYSCORE", P .. "egresses", WEEK - now, now - WEEK, "LIMIT", 0, 1)) do
  for _, home in ipairs(redis.call("ZRANGE", P .. "homes", 0, -1)) do
    for band = 1, BANDS do
      redis.call("UNLINK", ready_key(home, band, egress))
    end
  end
  redis.call("ZREM", P .. "egresses", egress)
end
return most <= 0 and 1 or 0
