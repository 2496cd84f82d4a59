-- Requests that are dropped together, because their crawl or their spider's part of it has ended.
-- Must hold: the fields are counted and deleted in one step, so that each request is dropped once; and `purge` lists
-- the crawl, or its queues would stay. The first letters of the fields are stored: p by priority, q queued, l later.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include assets
-- include counters
-- include lanes

-- Counts everything that waits (of one spider, or nil: of all) as dropped for a reason, at once. The queues are
-- unlinked later: by `purge`, or by the lease that meets them. Where the page budget is the reason, assets stay.
-- Returns how many requests there were.
local function drop_waiting(crawl, only_spider, reason)
  write_counters()
  local total = 0
  local row = redis.call("HGETALL", crawl.key)
  for i = 1, #row, 2 do
    local kind, rest = string.match(row[i], "^([pql]):(.*)$")
    if kind then
      local spider = kind == "p" and string.match(rest, "^(.*):[^:]*$") or rest
      if (not only_spider or spider_of(spider) == only_spider) and not (reason == "budget" and spider == ASSETS) then
        local count = tonumber(row[i + 1])
        redis.call("HDEL", crawl.key, row[i])
        if kind == "q" then
          count_backlog(crawl.token, spider, -count)
        end
        if kind ~= "p" then
          count_app(crawl, spider, -count)
          total = total + count
          count_done(crawl, "D:" .. spider .. ":" .. reason, count)
        end
      end
    end
  end
  if total > 0 then
    redis.call("ZADD", BASE .. "purge", now, crawl.token)
  end
  return total
end
