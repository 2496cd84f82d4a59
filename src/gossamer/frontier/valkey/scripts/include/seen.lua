-- The seen-set of a crawl: linear hashing over many small sets of integers (W. Litwin, 1980). So each stays an intset,
-- which takes about 10 bytes a URL, and no insertion pays for more than a split or two. (A split moves a part of one
-- set into a new one.) A fingerprint is the number that stands for a request. bucket_of must never change: it finds the
-- fingerprints that are stored.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include crawls

-- Returns the bucket of a fingerprint, and the size of the table's last full level. The hash comes from the decimal
-- text of a fingerprint: what a double keeps of it is the same every time, and division by 4096 (2 ^ 12) drops the low
-- bits, which it does not keep.
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

-- Returns the key of a bucket's set. It must not change, because the sets are stored.
local function bucket_key(crawl, index)
  return BASE .. "s:" .. crawl.token .. ":" .. crawl.generation .. ":" .. index
end

-- A set of one fingerprint is a field of the crawl: most crawls of a service have a single URL.
local function is_seen(crawl, fingerprint)
  if crawl.only_fingerprint then
    return crawl.only_fingerprint == fingerprint
  end
  return redis.call("SISMEMBER", bucket_key(crawl, bucket_of(fingerprint, crawl.buckets)), fingerprint) == 1
end
