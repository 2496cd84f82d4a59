-- Events: the ends of runs and of spiders' parts, kept on the home shard until a publisher confirms them. Fixed: the
-- id, by which consumers recognise a repetition, and the packed form (runs.py unpacks it).

-- Events that a shard keeps, about 50 MB. When there are more, the oldest is lost, and counted.
local MOST_EVENTS = 200000

-- Records the end of a run (spider "") or of one spider's part, in the script that decides it. `letter`: f, s or e (see
-- END_REASONS). Only for the pool `shared`: of the others, the process that began the crawl knows of its end.
local function record_event(token, letter, spider, purged)
  local run, generation, packed_crawl = unpack(redis.call("HMGET", BASE .. "h:" .. token, "run", "gen", "crawl"))
  if cmsgpack.unpack(packed_crawl)[3] ~= "shared" then -- the third value is the pool (codec.py)
    return
  end
  local id = string.sub(redis.sha1hex(table.concat({ token, run, generation, letter, spider }, "|")), 1, 32)
  redis.call("ZADD", BASE .. "events", wall, id)
  redis.call("HSET", BASE .. "event", id, cmsgpack.pack(letter, tonumber(run), spider, purged) .. packed_crawl)
  if redis.call("ZCARD", BASE .. "events") > MOST_EVENTS then
    redis.call("HDEL", BASE .. "event", redis.call("ZPOPMIN", BASE .. "events")[1])
    redis.call("HINCRBY", BASE .. "n", "events_lost", 1)
  end
end
