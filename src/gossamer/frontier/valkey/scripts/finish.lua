-- The end of a run, and the ends of keys.
-- include events

-- Counts everything that waits (of one spider, or all) as dropped for a reason, at once; queues are unlinked later by
-- whoever meets them. Returns how many.
local function drop_waiting(crawl, only_spider, reason)
  write_tallies()
  local total = 0
  local row = redis.call("HGETALL", P .. "c:" .. crawl.token)
  for i = 1, #row, 2 do
    local kind, rest = string.match(row[i], "^([pql]):(.*)$")
    if kind then
      local spider = kind == "p" and string.match(rest, "^(.*):[^:]*$") or rest
      if not only_spider or spider == only_spider then
        local count = tonumber(row[i + 1])
        redis.call("HDEL", P .. "c:" .. crawl.token, row[i])
        if kind == "q" then
          count_waiting(crawl.token, spider, -count)
        end
        if kind ~= "p" then
          total = total + count
          count_done(crawl, "D:" .. spider .. ":" .. reason, count)
        end
      end
    end
  end
  if total > 0 then
    redis.call("ZADD", P .. "purge", now, crawl.token)
  end
  return total
end

-- Whether every spider's part that had requests here ended early: each was told of, and the run's end is no news.
local function all_parts_ended(crawl)
  if not crawl.parts then
    return false
  end
  write_tallies()
  local had, over = {}, {}
  for _, field in ipairs(redis.call("HKEYS", P .. "c:" .. crawl.token)) do
    local kind, spider = string.match(field, "^(%a+):(.*)$")
    if kind == "a" then
      had[#had + 1] = spider
    elseif kind == "st" then
      over[spider] = true
    end
  end
  for _, spider in ipairs(had) do
    if not over[spider] then
      return false
    end
  end
  return #had > 0
end

-- Notes that everything of this crawl on this shard is done. Where this shard is all the crawl ever touched, that ends
-- the run here and now; else the caller looks at the other shards. Returns true for the latter.
local function check_done(token, retention)
  local crawl = crawl_of(token)
  if not crawl or crawl.added ~= crawl.done or (crawl.state ~= "r" and crawl.state ~= "b") then
    return false
  end
  local home = redis.call("HMGET", P .. "h:" .. token, "state", "shards", "run", "version")
  local shard = string.match(P, "{(.-)}")
  if home[1] and home[2] == shard and tonumber(home[3]) == crawl.run then
    if home[1] == "running" then
      redis.call("HSET", P .. "h:" .. token, "state", "finished", "ended", now)
      redis.call("HSET", P .. "c:" .. token, "st", "f", "closed", home[4] or 0)
      crawl.state = "f"
      redis.call("ZADD", P .. "ending", now + retention, token)
      redis.call("ZREM", P .. "idle", token)
      if not all_parts_ended(crawl) then
        tell(token, "f", "", 0)
      end
    end
    return false
  end
  redis.call("ZADD", P .. "idle", now, token)
  return true
end
