#!lua flags=allow-oom
-- What waits of an application on this shard, and how many of its crawls run whose home this shard is.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 application  4 spider, or "" for all
-- Returns { requests that wait in queues or for a retry, domains on which they wait (for each spider), crawls }
-- include common
-- include known
local appid, spider = ARGV[3], ARGV[4]
local row = redis.call("HGETALL", P .. "app:" .. appid)
local requests, domains = 0, 0
for i = 1, #row, 2 do
  if spider == "" or spider == row[i] then
    requests = requests + tonumber(row[i + 1])
    domains = domains + redis.call("HLEN", P .. "app-domains:" .. row[i] .. "|" .. appid)
  end
end
return { requests, domains, redis.call("SCARD", running_key(appid, spider)) }
