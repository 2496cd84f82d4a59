-- Additions to the seen-set of a crawl: the fingerprints (64-bit hashes) of all requests ever added. seen.lua tells how
-- the set is split into buckets.
-- Must hold: the number of buckets is written in the call that splits one, or fingerprints would be looked for in the
-- wrong bucket and pages fetched twice. So grow_seen comes after the additions of a call, before write_all (see
-- writes.lua, which also has call_on_key).
-- Stored in c:{token} (see crawls.lua), so the names are fixed: s the only fingerprint, n fingerprints, b buckets.
-- Names that are not declared below come from these files or their includes:
-- include counters
-- include seen

-- Fingerprints in a bucket on average. Must be below 256: a bucket that waits for its split holds up to twice as many,
-- and at 512 (set-max-intset-entries) a set needs more memory. Should not be lowered: the next addition to a large set
-- would split all of its buckets at once.
local MEAN_BUCKET = 200

-- Sets the field for the only fingerprint of a seen-set; nil removes it. crawl.new has the fields of a crawl whose
-- record is not written yet.
local function set_only_fingerprint(crawl, fingerprint)
  if crawl.new then
    crawl.new.s = fingerprint
  elseif fingerprint then
    redis.call("HSET", crawl.key, "s", fingerprint)
  else
    redis.call("HDEL", crawl.key, "s")
  end
  crawl.only_fingerprint = fingerprint or false
end

-- Adds a fingerprint. Returns true where it was not in the set. The first fingerprint becomes a field of the crawl; the
-- second moves it into a bucket.
local function mark_seen(crawl, fingerprint)
  local known = crawl.known
  if known then
    local group = known[fingerprint]
    if group == true then
      return false
    end
    group.new = group.new or {}
    table.insert(group.new, fingerprint)
    known[fingerprint], crawl.seen = true, crawl.seen + 1
    return true
  end
  if crawl.only_fingerprint then
    if crawl.only_fingerprint == fingerprint then return false end
    redis.call("SADD", bucket_key(crawl, bucket_of(crawl.only_fingerprint, crawl.buckets)), crawl.only_fingerprint)
    set_only_fingerprint(crawl, nil)
  elseif crawl.seen == 0 then
    set_only_fingerprint(crawl, fingerprint)
    crawl.seen = 1
    return true
  end
  local added = redis.call("SADD", bucket_key(crawl, bucket_of(fingerprint, crawl.buckets)), fingerprint)
  crawl.seen = crawl.seen + added
  return added == 1
end

-- Moves part of the next bucket in turn into a new last one. Example: of five buckets, 0 to 4, bucket 1 is split into
-- 1 and 5 (level 4: the last full power of two).
local function split_bucket(crawl)
  local index = crawl.buckets
  local _, level = bucket_of("0", index)
  local from, stay, move = index - level, {}, {}
  for _, fingerprint in ipairs(redis.call("SMEMBERS", bucket_key(crawl, from))) do
    -- The same formula as in bucket_of (4096 drops the low bits that a double does not keep): the bucket of the
    -- fingerprint once the new bucket is there.
    local hash = fingerprint / 4096
    local into = (hash - hash % 1) % (level * 2) == index and move or stay
    into[#into + 1] = fingerprint
  end
  if #move > 0 then
    redis.call("DEL", bucket_key(crawl, from))
    call_on_key("SADD", bucket_key(crawl, from), stay)
    call_on_key("SADD", bucket_key(crawl, index), move)
  end
  crawl.buckets = index + 1
end

-- Inserts what was marked after look_up, counts what was added, and splits buckets until their mean is right again. To
-- be called after additions.
local function grow_seen(crawl)
  local before = crawl.buckets
  for index, group in pairs(crawl.groups or {}) do
    if group.new then
      redis.call("SADD", bucket_key(crawl, index), unpack(group.new))
    end
  end
  crawl.groups, crawl.known = nil, nil
  count_crawl(crawl.token, "n", crawl.seen - crawl.before.seen)
  crawl.before.seen = crawl.seen
  while crawl.seen > crawl.buckets * MEAN_BUCKET do
    split_bucket(crawl)
  end
  if crawl.buckets ~= before then
    redis.call("HSET", crawl.key, "b", crawl.buckets)
  end
end
