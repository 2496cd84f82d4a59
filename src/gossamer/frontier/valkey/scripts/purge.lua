#!lua flags=allow-oom
-- Unlink the queues of crawls (or parts) that ended early, some at a time. What is not reached yet, a lease discards.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most domains a call
-- Returns 1 when there is more to do, else 0
-- include common
-- include throttle
-- include queues
local most = tonumber(ARGV[3])
local token = redis.call("ZRANGE", P .. "purge", 0, 0)[1]
if not token then
  return 0
end
local crawl = crawl_of(token)
local cursor = redis.call("HGET", P .. "purging", token) or "0"
local reply = crawl and redis.call("HSCAN", P .. "d:" .. token, cursor, "COUNT", most) or { "0", {} }
for i = 1, #reply[2], 2 do
  local domain = reply[2][i]
  local queues = {}
  for k, field in ipairs(share_of(token, domain).row) do
    queues[k] = field -- discarding changes the row itself
  end
  for k = 3, #queues, 3 do
    local spider, priority = queues[k], queues[k + 1]
    if ended(crawl, spider) then
      local home = crawl.pool .. "|" .. spider
      local _, head = head_of(home, domain)
      discard_queue(token, home, spider, domain, priority)
      if head then
        place(home, domain, band_of(head))
      end
    end
  end
end
if reply[1] == "0" then
  redis.call("ZREM", P .. "purge", token)
  redis.call("HDEL", P .. "purging", token)
else
  redis.call("HSET", P .. "purging", token, reply[1])
end
write_all()
return redis.call("EXISTS", P .. "purge")
