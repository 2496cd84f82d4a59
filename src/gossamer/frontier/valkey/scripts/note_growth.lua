#!lua
-- Add to the counts of pages that may have no end, for people who read about a crawl. On the shard of their domain.
-- Must hold: a run has few patterns, because all are read with its counters; others are left out.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token of the crawl  4 run  5 pattern  6 growth, a word  7 pages to add
--       8 most links between the start of the crawl and one of them  9 URL of one  10 most patterns of a run
-- Returns 1, or 0 where the run is not known or has too many patterns
-- Touches (see keys.py) c:{token}, clock
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local key, pattern = BASE .. "c:" .. ARGV[3], ARGV[5]
local run, packed = unpack(redis.call("HMGET", key, "run", "g"))
if run ~= ARGV[4] then return 0 end
local counts, size = packed and cmsgpack.unpack(packed) or {}, 0
for _ in pairs(counts) do size = size + 1 end
local _, pages, depth = unpack(counts[pattern] or { "", 0, 0 })
if pages == 0 and size >= tonumber(ARGV[10]) then return 0 end
counts[pattern] = { ARGV[6], pages + tonumber(ARGV[7]), math.max(depth, tonumber(ARGV[8])), ARGV[9] }
redis.call("HSET", key, "g", cmsgpack.pack(counts))
return 1
