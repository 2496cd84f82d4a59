#!lua flags=allow-oom
-- Remove what has outlived its retention, some keys at a time; repeat until done.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most keys a call
-- Returns 1 when there is more to do now, else 0
-- include common
local most = tonumber(ARGV[3])

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
  local left = 0
  if row[1] then
    left = remove_buckets(token, row[1], tonumber(row[2] or 1))
    redis.call("HSET", P .. "c:" .. token, "b", left)
  end
  if left == 0 then
    redis.call("UNLINK", P .. "c:" .. token, P .. "t:" .. token, P .. "d:" .. token, P .. "z:" .. token)
    redis.call("ZREM", P .. "ending", token)
    redis.call("ZREM", P .. "idle", token)
    redis.call("ZREM", P .. "purge", token)
    redis.call("HDEL", P .. "purging", token)
    if not redis.call("ZSCORE", P .. "marks", token) then
      redis.call("UNLINK", P .. "h:" .. token)
    end
    most = most - 1
  end
end
-- Retries of crawls that are over; everything else that is due a lease takes.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", P .. "later", "-inf", now, "LIMIT", 0, 1000)) do
  local token, run = cmsgpack.unpack(member)
  local crawl = crawl_of(token)
  if not crawl or crawl.run ~= run or crawl.state ~= "r" then
    redis.call("ZREM", P .. "later", member)
  end
end
for _, token in ipairs(redis.call("ZRANGEBYSCORE", P .. "marks", "-inf", now, "LIMIT", 0, 1000)) do
  redis.call("ZREM", P .. "marks", token)
  redis.call("UNLINK", P .. "h:" .. token)
end
-- A home that nobody added to for a week is forgotten; the next addition remembers it.
redis.call("ZREMRANGEBYSCORE", P .. "homes", "-inf", now - 604800000)
return most <= 0 and 1 or 0
