-- The check whether a run (one life of a crawl, from its first request to its end) is finished, after requests of it
-- have come to their end. Token: 16 characters that stand for a crawl. Home shard: the one that decides when it ends.
-- Must hold: added == done is compared when all counts of this call are made; and the run ends here only where the home
-- record is on this shard and names no other. Otherwise requests may wait on shards that are not asked.
-- BASE, now and wall are in shard.lua; other names that are not declared below, in these files or their includes:
-- include idle
-- include finishing

-- Finishes the run if nothing of it is left, and the crawl never touched another shard. Returns true where nothing is
-- left on this shard and the caller has to ask the others. The cases, in this order:
--   something is left, or the run has ended already (its state is neither "r", running, nor "b", page budget used up):
--     nothing happens
--   the run has to stay idle for a while first: that begins now (`idle_over`: it has been idle for long enough)
--   the home record is here and names no other shard: the run is finished
--   else: the run is noted in `idle`, for maintenance if the caller dies; true
local function check_finished(token, retention, idle_over)
  local crawl = crawl_of(token)
  if not crawl or crawl.added ~= crawl.done or (crawl.state ~= "r" and crawl.state ~= "b") then
    return false
  end
  if not idle_over and stays_idle(crawl) then
    redis.call("ZADD", BASE .. "idle-until", now + crawl.idle_ms, token)
    return false
  end
  local state, shards, run, version = unpack(
    redis.call("HMGET", BASE .. "h:" .. token, "state", "shards", "run", "version"))
  if state and shards == string.match(BASE, "{(.-)}") and tonumber(run) == crawl.run then -- the only one is this shard
    if state == "running" then
      redis.call("HSET", crawl.key, "st", "f", "closed", version or 0)
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
