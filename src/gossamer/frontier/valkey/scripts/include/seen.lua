-- The seen-set of a crawl: linear hashing over many small sets of integers, so that each stays an intset
-- (about 10 bytes a URL) and no insertion pays for more than a split or two (W. Litwin, 1980).
local MEAN = 200 -- fingerprints a bucket; one that waits for its split holds up to twice that, below intset's 512

-- A bucket is found from the decimal text of a fingerprint: what a double keeps of it is the same every time.
local function bucket_of(fingerprint, buckets)
  local hash = math.floor(tonumber(fingerprint) / 4096)
  local level = 1
  while level * 2 <= buckets do
    level = level * 2
  end
  local index = hash % (level * 2)
  if index >= buckets then
    index = hash % level
  end
  return index, level
end

local function bucket_key(crawl, index)
  return P .. "s:" .. crawl.token .. ":" .. crawl.gen .. ":" .. index
end

-- A set of one is a field of the crawl: most crawls of a service have a single URL.
local function is_seen(crawl, fingerprint)
  if crawl.only then
    return crawl.only == fingerprint
  end
  return redis.call("SISMEMBER", bucket_key(crawl, bucket_of(fingerprint, crawl.buckets)), fingerprint) == 1
end

-- True when it was not there.
local function mark_seen(crawl, fingerprint)
  if crawl.only then
    if crawl.only == fingerprint then
      return false
    end
    redis.call("SADD", bucket_key(crawl, bucket_of(crawl.only, crawl.buckets)), crawl.only)
    if crawl.new then
      crawl.new.s = nil
    else
      redis.call("HDEL", P .. "c:" .. crawl.token, "s")
    end
    crawl.only = false
  elseif crawl.seen == 0 then
    if crawl.new then
      crawl.new.s = fingerprint
    else
      redis.call("HSET", P .. "c:" .. crawl.token, "s", fingerprint)
    end
    crawl.only, crawl.seen = fingerprint, 1
    tally(crawl.token, "n", 1)
    return true
  end
  if redis.call("SADD", bucket_key(crawl, bucket_of(fingerprint, crawl.buckets)), fingerprint) == 1 then
    crawl.seen = crawl.seen + 1
    tally(crawl.token, "n", 1)
    return true
  end
  return false
end

local function split_bucket(crawl)
  local index = crawl.buckets
  local _, level = bucket_of("0", index)
  local from = index - level
  local stay, move = {}, {}
  for _, fingerprint in ipairs(redis.call("SMEMBERS", bucket_key(crawl, from))) do
    if math.floor(tonumber(fingerprint) / 4096) % (level * 2) == index then
      move[#move + 1] = fingerprint
    else
      stay[#stay + 1] = fingerprint
    end
  end
  if #move > 0 then
    redis.call("DEL", bucket_key(crawl, from))
    if #stay > 0 then
      push("SADD", bucket_key(crawl, from), stay)
    end
    push("SADD", bucket_key(crawl, index), move)
  end
  crawl.buckets = index + 1
end

local function grow_seen(crawl)
  local before = crawl.buckets
  while crawl.seen > crawl.buckets * MEAN do
    split_bucket(crawl)
  end
  if crawl.buckets ~= before then
    redis.call("HSET", P .. "c:" .. crawl.token, "b", crawl.buckets)
  end
end
