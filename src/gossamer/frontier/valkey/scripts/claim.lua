#!lua flags=allow-oom
-- Decide which process does something that is done once in a crawl. On the crawl's home shard. (Token: 16 characters
-- that stand for the crawl. Generation: number of the set of URLs that it has seen.)
-- Must hold: the stored form "<time> <process>", "" for what is done; the answers, which frontier/base.py names. Never
-- may two processes get 1 for the same name, unless the first has not repeated its claim in time.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 generation  5 name of the process, or "" to note that these are done
--       6 ms after which a claim that was not repeated is free again, at least  7 ms that all of it is remembered
--       then the names of what is to be done
-- Returns for each 1: this process does it, 0: it is done, -1: another process does it
-- Touches (see keys.py) clock, once:{token}:{generation}, patience
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- The most patient worker repeats its claims of accounts within 1.5 times that (_CLAIM_FACTOR in wiring/sessions.py).
local life = math.max(tonumber(ARGV[6]), 1.5 * dead_after(0))
local key, process = BASE .. "once:" .. ARGV[3] .. ":" .. ARGV[4], ARGV[5]
local answers = {}
for k = 8, #ARGV do
  local held = redis.call("HGET", key, ARGV[k])
  local since, holder = string.match(held or "", "^(%d+) (.+)$")
  local answer = 1
  if held == "" then
    answer = 0
  elseif since and holder ~= process and process ~= "" and now - tonumber(since) <= life then
    answer = -1
  else
    redis.call("HSET", key, ARGV[k], process == "" and "" or string.format("%.0f %s", now, process))
  end
  answers[#answers + 1] = answer
end
redis.call("PEXPIRE", key, ARGV[7])
return answers
