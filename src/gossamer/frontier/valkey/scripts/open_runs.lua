#!lua
-- Join the runs of many crawls, or begin their first, each as `open_run` does. On the home shard of all of them. No
-- finished run is followed by another: that is for a call that knows of something new for it. (Run: one life of a
-- crawl, from its first request to its end. Token: 16 characters that stand for a crawl.)
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua
--       then for each: token, crawl (msgpack: appid, crawlid, pool, ...), shards about to be touched: "3,5",
--       and when parts of it are to expire: their number, and for each spider, epoch ms (0: never)
-- Returns for each what `open_run` does
-- Touches (see keys.py) apps, clock, crawls:{appid}, ending, expiries, fresh:{name}, h:{token}, opened,
--         running:{spider}|{appid}, running:|{appid}, stopping
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include join_run
local answers, i = {}, 3
while i <= #ARGV do
  local last = i + 3 + 2 * tonumber(ARGV[i + 3])
  answers[#answers + 1] = join_run({
    token = ARGV[i], packed_crawl = ARGV[i + 1], name = "", shards = ARGV[i + 2], expected = 0, age = INF,
    fresh = false, expiries = { unpack(ARGV, i + 4, last) },
  })
  i = last + 1
end
return answers
