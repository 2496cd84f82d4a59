#!lua flags=allow-oom
-- End a run (one life of a crawl, from its first request to its end) on this shard if its home shard, which decides when
-- runs end, has lost the record of it: nothing else would ever end it here. The caller repeats this call as long as that
-- record is missing and the run is at rest on all other shards. The record may still come back, so the run ends only
-- after it has been at rest here for the whole retention. (Token: 16 characters that stand for a crawl. Generation:
-- number of the set of URLs that the crawl has seen. Retention: time for which an ended crawl is remembered.)
-- Must hold: the time starts again whenever a request is added or done, or requests that a worker has would be
-- dropped. `purge` deletes the queues of the run that ends here, and then `sweep` its other keys.
-- KEYS  1 prefix of the shard's keys
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 generation  6 retention ms
-- Returns 1 where the run was ended now, else 0
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock, ending, forgotten, idle, idle-until, purge, starving
-- transition: queued -> dropped on exhaust
-- transition: later -> dropped on exhaust
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include drop_waiting
-- include end_reasons
local token = ARGV[3]
local crawl = crawl_of(token)
-- At rest: all requests are done, or those that are left wait for a part of the crawl's page budget ("starving"). They
-- wait in vain, because the home shard shares out the budget.
local is_at_rest = crawl and crawl.run == tonumber(ARGV[4]) and crawl.generation == ARGV[5]
  and (crawl.added == crawl.done or redis.call("SISMEMBER", BASE .. "starving", token) == 1)
if not is_at_rest then
  redis.call("HDEL", BASE .. "forgotten", token)
  return 0
end
-- The hash "forgotten" has, for each such run, the time since when these two counts have not changed.
local row = redis.call("HGET", BASE .. "forgotten", token)
local since, added, done
if row then
  since, added, done = cmsgpack.unpack(row)
end
if added ~= crawl.added or done ~= crawl.done then
  redis.call("HSET", BASE .. "forgotten", token, cmsgpack.pack(now, crawl.added, crawl.done))
  return 0
end
if now - since < tonumber(ARGV[6]) then
  return 0
end
drop_waiting(crawl, nil, END_REASONS.b)  -- of all spiders, with the reason of an exhausted budget
redis.call("HSET", crawl.key, "st", "f")  -- state: finished
redis.call("ZADD", BASE .. "ending", now, token)
redis.call("ZREM", BASE .. "idle", token)
redis.call("ZREM", BASE .. "idle-until", token)
redis.call("HDEL", BASE .. "forgotten", token)
write_all()
return 1
