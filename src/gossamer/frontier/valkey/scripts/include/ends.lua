-- Ending a crawl or one spider's part of it, on the crawl's home shard: because nothing is left, because somebody asked, or
-- because its time has passed.
-- include events
-- include known

local function note_end(key, state)
  redis.call("HSET", key, "state", state, "ended", wall)
  if now ~= wall then -- the server's clock was set: "ended" is for people, "over" the same in the shard's time
    redis.call("HSET", key, "over", string.format("%.3f", now))
  end
end

-- When it ended, in the shard's time.
local function ended_at(key)
  local row = redis.call("HMGET", key, "over", "ended")
  return tonumber(row[1] or row[2] or 0)
end

-- Marks it as ended, before its shards are halted: `halting` remembers that they are still to be told, and "ev:<spider>"
-- that the world is, once it is known what was purged. Returns 1, or 0 when there is no such crawl.
local function end_early(token, state, spider, mark, retention)
  local key = P .. "h:" .. token
  local before = redis.call("HGET", key, "state")
  if not before then
    return 0
  end
  local letter, changed = string.sub(state, 1, 1), false
  if spider ~= "" then
    changed = redis.call("HSETNX", key, "st:" .. spider, letter) == 1
    unlist_running(token, spider)
  elseif before == "running" or (before == "finished" and state ~= "finished") then
    changed = true
    note_end(key, state)
    unlist_running(token)
    if state ~= "finished" then
      redis.call("ZADD", P .. "marks", now + mark, token)
    end
    redis.call("ZADD", P .. "ending", now + retention, token)
  end
  if changed and before == "running" then
    redis.call("HSET", key, "ev:" .. spider, letter)
  end
  local version = redis.call("HINCRBY", key, "version", 1)
  redis.call("HSET", key, "stop", version)
  redis.call("HSET", P .. "halting", token, version)
  return 1
end

-- Notes until when a submission wants its spider's part of the run to go on (ms; 0: for ever). The latest counts.
local function expire_at(token, spider, at)
  local key, field = P .. "h:" .. token, "x:" .. spider
  local known = tonumber(redis.call("HGET", key, field) or -1)
  if known == 0 or (at > 0 and known >= at) then
    return
  end
  if known < 0 and redis.call("HEXISTS", key, "st:" .. spider) == 0 then
    list_running(token, spider)
  end
  redis.call("HSET", key, field, string.format("%.0f", at))
  if at > 0 then
    redis.call("ZADD", P .. "expiries", string.format("%.0f", at), token .. "|" .. spider)
  elseif known > 0 then
    redis.call("ZREM", P .. "expiries", token .. "|" .. spider)
  end
end

-- Forgets when parts of a crawl were to expire.
local function forget_expiries(token)
  local key = P .. "h:" .. token
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local spider = string.match(field, "^x:(.*)$")
    if spider then
      redis.call("HDEL", key, field)
      redis.call("ZREM", P .. "expiries", token .. "|" .. spider)
    end
  end
end

-- Ends a run of which nothing is left. Parts whose time has passed by `at` end as expired, the run as finished; that is
-- no news where every part ended early, or nothing was ever added. `at`: the latest time by the clock of any shard that
-- the run touched: one whose clock is ahead may have dropped what expires before this shard thinks it is time.
-- `spiders`: each that had requests, and how many of them were dropped as expired: name, count, ...
local function end_run(token, at, retention, spiders)
  local key, news = P .. "h:" .. token, false
  unlist_running(token)
  for k = 1, #spiders, 2 do
    local spider = spiders[k]
    local row = redis.call("HMGET", key, "st:" .. spider, "x:" .. spider)
    local expires = tonumber(row[2] or 0)
    if not row[1] and expires > 0 and expires <= at then
      redis.call("HSET", key, "st:" .. spider, "e")
      redis.call("HDEL", key, "x:" .. spider)
      redis.call("ZREM", P .. "expiries", token .. "|" .. spider)
      tell(token, "e", spider, tonumber(spiders[k + 1]))
    elseif not row[1] then
      news = true
    end
  end
  note_end(key, "finished")
  redis.call("ZADD", P .. "ending", now + retention, token)
  if news then
    tell(token, "f", "", 0)
  end
end
