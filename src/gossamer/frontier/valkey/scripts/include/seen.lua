-- The seen-set of a crawl: the fingerprints (64-bit hashes) of all requests ever added. It is a hash table of many
-- small sets, the buckets, whose number grows by one at a time (linear hashing, W. Litwin, 1980). So each set stays an
-- intset, which takes about 10 bytes a URL, and no insertion pays for more than a split or two. This file looks
-- fingerprints up; mark_seen.lua inserts them and splits the buckets. The fields of `crawl` are listed in crawls.lua.
-- Must hold: load_seen is called before the other functions; and the results of bucket_of and bucket_key, and the field
-- of a single fingerprint. Sets are stored by them, so another result would make URLs unknown that were fetched.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include crawls

local last_buckets, last_level -- of the last call of bucket_of

-- Reads what the other functions need of a crawl, where it was not read yet: how many fingerprints its seen-set has
-- (`seen`), in how many buckets, and the only one of a set that has one. They may have been read as further counters of
-- crawl_of.
local function load_seen(crawl)
  if crawl.seen then return end
  local known = crawl.counters or {}
  local seen, buckets, only = known.n, known.b, known.s
  if not seen then seen, buckets, only = unpack(redis.call("HMGET", crawl.key, "n", "b", "s")) end
  crawl.seen, crawl.buckets, crawl.only_fingerprint = (seen or 0) + 0, math.max(1, buckets or 1), only ~= 0 and only
  crawl.before.seen = crawl.seen
end

-- Returns the bucket of a fingerprint in a table of so many buckets; and, for the split in mark_seen.lua, the largest
-- power of two that is not above that number. A double holds only the first 53 bits of a fingerprint, which comes as
-- decimal text. Dividing by 4096 drops the 12 low bits, which include those that it loses.
local function bucket_of(fingerprint, buckets)
  local hash = fingerprint / 4096
  hash = hash - hash % 1
  if buckets ~= last_buckets then
    last_buckets, last_level = buckets, 1
    while last_level * 2 <= buckets do
      last_level = last_level * 2
    end
  end
  local index = hash % (last_level * 2)
  if index >= buckets then -- that bucket is not there yet: its fingerprints are still in the one that it will split
    index = hash % last_level
  end
  return index, last_level
end

-- Returns the key of a bucket's set.
local function bucket_key(crawl, index)
  crawl.bucket_prefix = crawl.bucket_prefix or BASE .. "s:" .. crawl.token .. ":" .. crawl.generation .. ":"
  return crawl.bucket_prefix .. index
end

-- Looks up fingerprints, those of a bucket with one command: of every second value from `first` on, in each list. Until
-- grow_seen inserts those that are marked meanwhile, `crawl.known` has for each true, or the group of its bucket where it
-- is not in the set.
local function look_up(crawl, lists, first)
  local groups, known = {}, {}
  local find_bucket = bucket_of
  for _, list in ipairs(lists) do
    for place = first, #list, 2 do
      local index = find_bucket(list[place], crawl.buckets)
      local group = groups[index] or {}
      groups[index], group[#group + 1] = group, list[place]
    end
  end
  for index, group in pairs(groups) do
    local replies = redis.call("SMISMEMBER", bucket_key(crawl, index), unpack(group))
    for i = 1, #group do
      known[group[i]] = replies[i] == 1 or group
    end
  end
  crawl.groups, crawl.known = groups, known
end

-- Returns whether a fingerprint is in the set. A crawl with one fingerprint has no set yet: the fingerprint is in a
-- field of the crawl, because most crawls of a service have a single URL.
local function is_seen(crawl, fingerprint)
  if crawl.known then
    return crawl.known[fingerprint] == true
  end
  if crawl.only_fingerprint then
    return crawl.only_fingerprint == fingerprint
  end
  return redis.call("SISMEMBER", bucket_key(crawl, bucket_of(fingerprint, crawl.buckets)), fingerprint) == 1
end
