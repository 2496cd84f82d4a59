-- Which run of a crawl a shard is in. (Run: one life of a crawl. Generation: number of the set of URLs that it has
-- seen.) Must hold: the order of two runs never changes, or shards would end a run that goes on.

-- Compares a run with the one that this shard knows: 1 where it is a later one (or the shard knows none), 0 where it is
-- the same, -1 where it is an earlier one. The generation counts for more than the run: it only ever grows, also when a
-- crawl was forgotten on its home shard and begins with run 1 again before this shard has removed the old one.
local function compare_run(crawl, run, generation)
  if not crawl then
    return 1
  end
  local here, there = tonumber(crawl.generation), tonumber(generation)
  if here == there then
    here, there = crawl.run, run
  end
  return here < there and 1 or here > there and -1 or 0
end
