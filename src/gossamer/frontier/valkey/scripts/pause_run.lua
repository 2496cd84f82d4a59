#!lua flags=allow-oom
-- Pause a crawl's run on a shard, or let it go on. A paused run takes requests and settlements, and hands none out: a
-- lease that meets one of its queues sets it aside, as starving.lua does. (Run: one life of a crawl, from its first
-- request to its end. Token: 16 characters that stand for a crawl.)
-- Must hold: only a run that is running is paused, and only the one that the caller knows; a paused run is never finished
-- (check_finished.lua looks at the state), because it may be exported.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 run  5 "p": pause, "r": go on  6 most domains put back
-- Returns { 1 where the run is in that state now, else 0; 1 where domains are left to be put back;
--         the shard's time in ms }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app:{appid}, backlog, c:{token}, clock, d:{token}, egresses,
--         groups, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, w:{scope}, wait:{pool}, x:{domain}, z:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include starving
local token, run, state = ARGV[3], tonumber(ARGV[4]), ARGV[5]
local crawl = crawl_of(token)
if not crawl or crawl.run ~= run or (crawl.state ~= "r" and crawl.state ~= "p") then
  return { 0, 0, string.format("%.3f", now) }
end
if crawl.state ~= state then
  redis.call("HSET", crawl.key, "st", state)
  crawl.state = state
end
if state == "r" then
  for _, domain in ipairs(redis.call("SPOP", BASE .. "z:" .. token, ARGV[6])) do
    end_starving(crawl, domain)
  end
end
write_all()
return { 1, state == "r" and redis.call("EXISTS", BASE .. "z:" .. token) or 0,
  string.format("%.3f", now) }
