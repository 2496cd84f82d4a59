-- Finishing a run (one life of a crawl) of which nothing is left, on the crawl's home shard, which alone decides that.
-- Part: what one spider does of a run. Token: 16 characters that stand for a crawl.
-- Must hold: the letters and fields, which are stored; the events are recorded in the call that ends the run, so that
-- each end is reported once, whichever process dies afterwards.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include run_end
-- include unlist
-- include events

-- Finishes a run. Parts whose time has passed by `at` end as expired, the run as finished; no event says so where every
-- part ended early, or nothing was ever added. `at`: the latest time by the clock of any shard that the run touched,
-- since a shard whose clock is ahead may have dropped what expires before this shard thinks it is time. `spiders`: each
-- that had requests, and how many of them were dropped as expired: name, count, ...
local function end_run(token, at, retention, spiders)
  local key, has_finished_part = BASE .. "h:" .. token, false
  unlist_running(token)
  for k = 1, #spiders, 2 do
    local spider = spiders[k]
    local ended, expires = unpack(redis.call("HMGET", key, "st:" .. spider, "x:" .. spider))
    if not ended and tonumber(expires or 0) > 0 and tonumber(expires) <= at then
      redis.call("HSET", key, "st:" .. spider, "e")
      redis.call("HDEL", key, "x:" .. spider)
      redis.call("ZREM", BASE .. "expiries", token .. "|" .. spider)
      record_event(token, "e", spider, tonumber(spiders[k + 1]))
    elseif not ended then
      has_finished_part = true
    end
  end
  write_end(key, "finished")
  redis.call("ZADD", BASE .. "ending", now + retention, token)
  if has_finished_part then
    record_event(token, "f", "", 0)
  end
end
