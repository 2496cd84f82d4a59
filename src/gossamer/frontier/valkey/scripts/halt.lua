#!lua flags=allow-oom
-- Stop a crawl, or one spider's part, on one shard: nothing of it is leased or added from here on; what waited is
-- counted as dropped at once.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 state letter: s, e, b or f  5 spider or ""  6 retention ms
-- Returns { requests purged, tokens idle on this shard ... }
-- include common
-- include throttle
-- include queues
-- include finish
local token, letter, spider = ARGV[3], ARGV[4], ARGV[5]
local crawl = crawl_of(token)
if not crawl then
  return { 0 }
end
local reason = REASON[letter]
local key = P .. "c:" .. token
local purged
if spider ~= "" then
  redis.call("HSET", key, "parts", 1, "st:" .. spider, letter)
  crawl.parts = crawl.parts or {}
  crawl.parts[spider] = letter
  purged = drop_waiting(crawl, spider, reason)
else
  if crawl.state == "r" then
    redis.call("HSET", key, "st", letter)
    crawl.state = letter
  end
  purged = drop_waiting(crawl, nil, reason)
  redis.call("ZADD", P .. "ending", now + tonumber(ARGV[6]), token)
end
local idle = check_done(token, tonumber(ARGV[6])) and token or nil
write_all()
return { purged, idle }
