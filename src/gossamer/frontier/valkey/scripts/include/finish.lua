-- The end of a run, and the ends of keys.
-- include ends

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
          count_pending(crawl, spider, -count)
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

-- Each spider that had requests of this run here, and how many of them were dropped as expired: name, count, ...
local function spiders_of(token)
  write_tallies()
  local row, expired, spiders = redis.call("HGETALL", P .. "c:" .. token), {}, {}
  for i = 1, #row, 2 do
    local kind, spider = string.match(row[i], "^([aD]):(.*)$")
    if kind == "a" then
      spiders[#spiders + 1] = spider
    elseif kind == "D" then
      expired[string.match(spider, "^(.*):expired$") or ""] = row[i + 1]
    end
  end
  local answer = {}
  for _, spider in ipairs(spiders) do
    answer[#answer + 1] = spider
    answer[#answer + 1] = tonumber(expired[spider] or 0)
  end
  return answer
end

-- Whether every spider's part that had requests here was stopped or has expired.
local function all_parts_ended(crawl)
  if not crawl.parts then
    return false
  end
  local spiders = spiders_of(crawl.token)
  for k = 1, #spiders, 2 do
    if not ended(crawl, spiders[k]) then
      return false
    end
  end
  return true
end

-- Whether the run, with nothing to do on this shard, is to stay idle for a while before it ends.
local function needs_rest(crawl)
  return crawl.idle_ms > 0 and crawl.state == "r" and not all_parts_ended(crawl)
end

-- Until when it is to stay idle; 0: it need not.
local function rests_until(crawl)
  return needs_rest(crawl) and tonumber(redis.call("ZSCORE", P .. "resting", crawl.token) or 0) or 0
end

-- Notes that everything of this crawl on this shard is done. A run that is to stay idle for a while begins that now
-- (`rested`: it was idle for long enough). Else, where this shard is all the crawl ever touched, that ends the run here
-- and now; or the caller looks at the other shards. Returns true for the latter.
local function check_done(token, retention, rested)
  local crawl = crawl_of(token)
  if not crawl or crawl.added ~= crawl.done or (crawl.state ~= "r" and crawl.state ~= "b") then
    return false
  end
  if not rested and needs_rest(crawl) then
    redis.call("ZADD", P .. "resting", now + crawl.idle_ms, token)
    return false
  end
  local home = redis.call("HMGET", P .. "h:" .. token, "state", "shards", "run", "version")
  local shard = string.match(P, "{(.-)}")
  if home[1] and home[2] == shard and tonumber(home[3]) == crawl.run then
    if home[1] == "running" then
      redis.call("HSET", P .. "c:" .. token, "st", "f", "closed", home[4] or 0)
      crawl.state = "f"
      redis.call("ZREM", P .. "idle", token)
      redis.call("ZREM", P .. "resting", token)
      end_run(token, wall, retention, spiders_of(token))
    end
    return false
  end
  redis.call("ZADD", P .. "idle", now, token)
  return true
end
