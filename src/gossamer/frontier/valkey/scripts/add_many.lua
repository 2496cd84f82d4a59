#!lua
-- Add the URLs of many submissions, each as `add` does.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 single: 1 where there is one shard  4 retention ms
--       then for each: token, run, generation, crawl (msgpack), digest of the terms, limits (msgpack) and terms (opaque),
--       version at which the home shard confirmed the run just now, stopped spiders: "slink,eother",
--       how many arguments its batches are, and those, as in `add`
-- Returns for each what `add` does; one that is closed or purging has changed nothing
-- include common
-- include adding
local single, retention, answers, i = ARGV[3], tonumber(ARGV[4]), {}, 5
while i <= #ARGV do
  local first = i + 9
  local final = first + tonumber(ARGV[i + 8]) - 1
  answers[#answers + 1] = add_batches(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], single, ARGV[i + 3], ARGV[i + 4],
    ARGV[i + 5], tonumber(ARGV[i + 6]), "", "", ARGV[i + 7], retention, true, true, first, final)
  i = final + 1
end
write_all()
return answers
