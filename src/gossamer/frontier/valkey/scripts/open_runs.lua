#!lua
-- Join the runs of many crawls, or begin their first, each as `open` does. On the home shard of all of them. No run is
-- followed by another: that is for who knows that there is something new for it.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix
--       then for each: token, crawl (msgpack: appid, crawlid, pool, ...), shards about to be touched: "3,5",
--       and when parts of it are to expire: their number, and for each spider, epoch ms (0: never)
-- Returns for each what `open` does
-- include common
-- include opening
local answers, i = {}, 3
while i <= #ARGV do
  local last = i + 3 + 2 * tonumber(ARGV[i + 3])
  answers[#answers + 1] = open_run(ARGV[i], ARGV[i + 1], "", false, ARGV[i + 2], 0, INF, { unpack(ARGV, i + 4, last) })
  i = last + 1
end
return answers
