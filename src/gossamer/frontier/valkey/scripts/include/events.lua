-- What the world is to be told: the ends of runs, kept on the home shard until somebody says that they were told.
local MOST_EVENTS = 200000 -- a shard, about 50 MB; beyond, the oldest is lost, and counted

-- The end of a run (spider "") or of one spider's part, in the script that decides it. Kind: f, s or e. Only of the pool
-- `shared`: of other crawls whoever began them knows.
local function tell(token, kind, spider, purged)
  local row = redis.call("HMGET", P .. "h:" .. token, "run", "gen", "crawl")
  if cmsgpack.unpack(row[3])[3] ~= "shared" then
    return
  end
  local id = string.sub(redis.sha1hex(table.concat({ token, row[1], row[2], kind, spider }, "|")), 1, 32)
  redis.call("ZADD", P .. "events", wall, id)
  redis.call("HSET", P .. "event", id, cmsgpack.pack(kind, tonumber(row[1]), spider, purged) .. row[3])
  if redis.call("ZCARD", P .. "events") > MOST_EVENTS then
    redis.call("HDEL", P .. "event", redis.call("ZPOPMIN", P .. "events")[1])
    redis.call("HINCRBY", P .. "n", "events_lost", 1)
  end
end

-- Forgets events that ended before this time, some at once.
local function forget_events(before)
  local ids = redis.call("ZRANGEBYSCORE", P .. "events", "-inf", before, "LIMIT", 0, 1000)
  if #ids > 0 then
    redis.call("ZREM", P .. "events", unpack(ids))
    redis.call("HDEL", P .. "event", unpack(ids))
  end
end
