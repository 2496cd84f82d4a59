-- The check whether a run is finished, after requests of it have come to their end.
-- include idle
-- include finishing

-- Notes that all requests of this crawl on this shard are done, where they are. A run that is to stay idle for a while
-- begins that now (`idle_over`: it has been idle for long enough). Else, where the crawl ever touched this shard only,
-- the run is finished here and now; or the caller has to look at the other shards. Returns true for the latter.
local function check_finished(token, retention, idle_over)
  local crawl = crawl_of(token)
  if not crawl or crawl.added ~= crawl.done or (crawl.state ~= "r" and crawl.state ~= "b") then
    return false
  end
  if not idle_over and stays_idle(crawl) then
    redis.call("ZADD", BASE .. "idle-until", now + crawl.idle_ms, token)
    return false
  end
  local home = redis.call("HMGET", BASE .. "h:" .. token, "state", "shards", "run", "version")
  local shard = string.match(BASE, "{(.-)}")
  if home[1] and home[2] == shard and tonumber(home[3]) == crawl.run then
    if home[1] == "running" then
      redis.call("HSET", crawl.key, "st", "f", "closed", home[4] or 0)
      crawl.state = "f"
      redis.call("ZREM", BASE .. "idle", token)
      redis.call("ZREM", BASE .. "idle-until", token)
      end_run(token, wall, retention, spiders_of(crawl))
    end
    return false
  end
  redis.call("ZADD", BASE .. "idle", now, token)
  return true
end
