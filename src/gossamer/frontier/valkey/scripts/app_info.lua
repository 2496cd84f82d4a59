#!lua flags=allow-oom
-- Return the requests of an application that wait on this shard, and its running crawls whose home this shard is. Only
-- reads.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 application  4 spider, or "" for all
-- Returns { requests that wait in queues or to be queued later, domains on which they wait (for each spider and lane),
--         crawls }
-- Touches (see keys.py) app-domains:{spider}|{appid}, app:{appid}, clock, running:{spider}|{appid}, running:|{appid}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include running
-- include lanes
local appid, spider = ARGV[3], ARGV[4]
local row = redis.call("HGETALL", BASE .. "app:" .. appid)
local requests, domains = 0, 0
for i = 1, #row, 2 do
  if spider == "" or spider == spider_of(row[i]) then
    requests = requests + tonumber(row[i + 1])
    domains = domains + redis.call("HLEN", BASE .. "app-domains:" .. row[i] .. "|" .. appid)
  end
end
return { requests, domains, redis.call("SCARD", running_key(appid, spider)) }
