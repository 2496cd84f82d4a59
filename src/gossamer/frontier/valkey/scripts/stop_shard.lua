#!lua flags=allow-oom
-- End a run, or one spider's part, on one shard: nothing of it is leased or added from here on; what waited is counted
-- as dropped at once. A shard that was touched and not yet added to is told too: the addition may be under way.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 generation  6 single: 1 where there is one shard  7 crawl (opaque)  8 state letter: s, e, b or f
--       9 spider or ""  10 retention ms  11 which stop this carries out, or 0
-- Returns { requests purged for that stop so far, whoever told this shard of it, the same for this end (whichever stop
--         said so), tokens idle on this shard ... },
--         or { -1 } when an earlier run has to be purged first
-- include common
-- include throttle
-- include queues
-- include finish
-- include runs
local token, letter, spider, retention = ARGV[3], ARGV[8], ARGV[9], tonumber(ARGV[10])
local number = ARGV[11]
local crawl = crawl_of(token)
local ahead = run_ahead(crawl, tonumber(ARGV[4]), ARGV[5])
if ahead < 0 then
  return { 0, 0 }
end
if ahead > 0 then
  crawl = begin_run(token, tonumber(ARGV[4]), ARGV[5], ARGV[6], ARGV[7], "")
  if not crawl then
    return { -1 }
  end
end
local key = P .. "c:" .. token
local purged
if spider ~= "" then
  redis.call("HSET", key, "parts", 1, "st:" .. spider, letter)
  crawl.parts = crawl.parts or {}
  crawl.parts[spider] = letter
  purged = drop_waiting(crawl, spider, REASON[letter])
else
  if crawl.state == "r" or (letter ~= "b" and crawl.state ~= letter) then
    redis.call("HSET", key, "st", letter)
    crawl.state = letter
  end
  purged = drop_waiting(crawl, nil, REASON[letter])
  if letter ~= "b" then -- a spent budget ends the run only when all shards agree
    redis.call("ZADD", P .. "ending", "NX", now + retention, token)
    redis.call("ZREM", P .. "idle", token)
    redis.call("ZREM", P .. "resting", token)
  end
end
local of_end
if letter == "e" and spider ~= "" then -- leases may have dropped some of it before
  write_tallies()
  of_end = tonumber(redis.call("HGET", key, "D:" .. spider .. ":expired") or 0)
elseif letter ~= "b" and purged > 0 then
  of_end = redis.call("HINCRBY", key, "pu:" .. spider, purged)
else
  of_end = tonumber(redis.call("HGET", key, "pu:" .. spider) or 0)
end
if number ~= "0" then
  local last = redis.call("HMGET", key, "stop", "purged")
  if last[1] == number then
    purged = purged + tonumber(last[2])
  end
  redis.call("HSET", key, "stop", number, "purged", purged)
end
local idle = check_done(token, retention) and token or nil
write_all()
return { purged, of_end, idle }
