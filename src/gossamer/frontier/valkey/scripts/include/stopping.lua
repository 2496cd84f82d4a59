-- Ending a crawl, or one spider's part of it, early: on the crawl's home shard (which decides when it ends), before its
-- shards are told. Token: 16 characters that stand for a crawl.
-- Must hold: this comes before any `stop_shard`, and the version is the one that `stopping` gets: `confirm_stop`
-- deletes the note only if no other end came meanwhile. So a stop whose process died is carried out by maintenance.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include run_end
-- include service_pools
-- include unlist

-- Whether a worker of the crawl's own pool waits for more of the crawl, though nothing is left: a Scrapy process whose spider
-- wants to stay open. Workers of the service wait for any crawl. The home shard knows: an idle worker asks all shards.
local function is_awaited(packed_crawl)
  local pool = cmsgpack.unpack(packed_crawl)[3]
  if not is_of_service(pool) then
    for _, worker in ipairs(redis.call("ZRANGE", BASE .. "wait:" .. pool, 0, -1)) do
      if redis.call("ZSCORE", BASE .. "workers", worker) then
        return true
      end
    end
  end
  return false
end

-- Marks the crawl (spider "") or the part as ended. `stopping` notes that its shards are still to be told, and the
-- field "ev:<spider>" that an event is still to be recorded, once it is known how many requests were purged. The first
-- end of a part counts. `state`: stopped, expired, or finished (given up: it may run anew). `marker_ms`: how long a
-- stopped crawl refuses submissions. Returns 1, or 0 where there is no such crawl, or it has finished by itself and no
-- worker of its own waits for more: nothing is left to end then.
local function end_early(token, state, spider, marker_ms, retention)
  local key = BASE .. "h:" .. token
  local before, packed_crawl = unpack(redis.call("HMGET", key, "state", "crawl"))
  if not before or (before == "finished" and state ~= "finished" and not is_awaited(packed_crawl)) then
    return 0
  end
  local letter, changed_now = string.sub(state, 1, 1), false
  if spider ~= "" then
    changed_now = redis.call("HSETNX", key, "st:" .. spider, letter) == 1
    unlist_part(token, spider)
  elseif before == "running" or (before == "finished" and state ~= "finished") then
    changed_now = true
    write_end(key, state)
    unlist_running(token)
    if state ~= "finished" then
      redis.call("ZADD", BASE .. "stop-markers", now + marker_ms, token)
    end
    redis.call("ZADD", BASE .. "ending", now + retention, token)
  end
  if changed_now and before == "running" then
    redis.call("HSET", key, "ev:" .. spider, letter)
  end
  local version = redis.call("HINCRBY", key, "version", 1)
  redis.call("HSET", key, "stop", version)
  redis.call("HSET", BASE .. "stopping", token, version)
  return 1
end
