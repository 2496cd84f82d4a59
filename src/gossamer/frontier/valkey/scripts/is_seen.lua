#!lua flags=allow-oom
-- Return whether a fingerprint is in a crawl's seen-set. Only reads. (Token: 16 characters that stand for a crawl.)
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 fingerprint
-- Returns 1 or 0
-- Touches (see keys.py) c:{token}, clock, s:{token}:{generation}:{bucket}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include seen
local crawl = crawl_of(ARGV[3])
if not crawl then
  return 0
end
load_seen(crawl)
return is_seen(crawl, ARGV[4]) and 1 or 0
