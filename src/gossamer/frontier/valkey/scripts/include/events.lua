-- Events: the ends of runs and of spiders' parts, kept on the home shard until a publisher confirms them. Fixed: the
-- id, by which consumers recognise a repetition, and the packed form (runs.py unpacks it).
-- BASE and wall are in shard.lua; other names that are not declared below, in these files or their includes:
-- include service_pools

-- Records the end of a run (spider "") or of one spider's part, in the script that decides it. `letter`: f, s or e (see
-- END_REASONS). Only for crawls of a service: of the others, the process that began the crawl knows of its end.
local function record_event(token, letter, spider, purged)
  local run, generation, packed_crawl = unpack(redis.call("HMGET", BASE .. "h:" .. token, "run", "gen", "crawl"))
  if not is_of_service(cmsgpack.unpack(packed_crawl)[3]) then return end
  local id = string.sub(redis.sha1hex(table.concat({ token, run, generation, letter, spider }, "|")), 1, 32)
  redis.call("ZADD", BASE .. "events", wall, id)
  redis.call("HSET", BASE .. "event", id, cmsgpack.pack(letter, tonumber(run), spider, purged) .. packed_crawl)
  if redis.call("ZCARD", BASE .. "events") > 200000 then -- about 50 MB: the oldest is lost, and counted
    local oldest = redis.call("ZPOPMIN", BASE .. "events")[1]
    redis.call("HINCRBY", BASE .. "n", "events_lost", redis.call("HDEL", BASE .. "event", oldest))
  end
end
