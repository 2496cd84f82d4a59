#!lua flags=allow-oom
-- Unlink the queues of crawls (or of spiders' parts of them) that ended early, some at a time. What this has not
-- reached yet, a lease discards. The requests were counted as dropped when the crawl ended (drop_waiting.lua), so none
-- is counted here, and a process may die between two calls.
-- Must hold: the crawl stays in `purge` until the cursor has come round; a new run of it waits for that
-- (begin_run.lua).
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 most domains a call (approximate)
-- Returns 1 when there is more to do, else 0
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, egresses, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, purge, purging,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         w:{scope}, wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include discarding
-- include end_reasons
local most = tonumber(ARGV[3])
local token = redis.call("ZRANGE", BASE .. "purge", 0, 0)[1]
if not token then
  return 0
end
local crawl = crawl_of(token)
local cursor = redis.call("HGET", BASE .. "purging", token) or "0"
local reply = crawl and redis.call("HSCAN", BASE .. "d:" .. token, cursor, "COUNT", most) or { "0", {} }
local next_cursor, shares_found = unpack(reply) -- domain, share, ...
for i = 1, #shares_found, 2 do
  local domain = shares_found[i]
  -- Spider, priority and count of each queue, from FIRST_QUEUE on (shares.lua). A copy: discarding changes the row.
  local row = {}
  for k, field in ipairs(share_of(token, domain).row) do
    row[k] = field
  end
  for k = FIRST_QUEUE, #row, 3 do
    local spider, priority = row[k], row[k + 1]
    if end_reason(crawl, spider) then
      local group = crawl.pool .. "|" .. spider
      local head = head_of(group, domain)
      discard_queue(token, group, spider, domain, priority)
      if head then
        place_domain(group, domain, band_of(head.priority))
      end
    end
  end
end
if next_cursor == "0" then
  redis.call("ZREM", BASE .. "purge", token)
  redis.call("HDEL", BASE .. "purging", token)
else
  redis.call("HSET", BASE .. "purging", token, next_cursor)
end
write_all()
return redis.call("EXISTS", BASE .. "purge")
