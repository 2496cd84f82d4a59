-- Failed requests that a crawl keeps for retries: those that got no answer, which the same command retries, or all, for a
-- crawl of a service. They are a list, failed:{token}, oldest first. (Token: 16 characters that stand for a crawl.) Three
-- counters of the crawl belong to it: k, the number of its rows; K, their bytes; v, the number of requests for which
-- there was no room.
-- Must hold: a row of the list is { counter, priority, spider, domain, entry }, which retry_failed.lua reads (counter:
-- the field of c:{token} that counts the request as failed; entry: the packed request); the counters change together
-- with the list.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include counters

-- Of a crawl on this shard, about 200,000 requests; and 15,000 of one that keeps all: there may be thousands of those.
local MOST_BYTES, MOST_BYTES_OF_ALL = 33554432, 2097152
local LIFE = 2592000000 -- ms (30 days). The list goes with its crawl; this is for one that an older version removes.

-- Keeps a request that failed; its crawl wants that (`keeps_failed`, `keeps_all`). `counter`: the field of c:{token} that counts it.
-- `request`: { priority, spider, domain, entry }.
local function keep_failed(crawl, counter, request)
  local row = cmsgpack.pack(counter, unpack(request))
  local key = BASE .. "failed:" .. crawl.token
  local kept = (redis.call("HGET", crawl.key, "K") or 0) + ((hash_changes[crawl.key] or {}).K or 0)
  if kept + #row > (crawl.keeps_all and MOST_BYTES_OF_ALL or MOST_BYTES) then
    count_crawl(crawl.token, "v", 1)
    return
  end
  redis.call("RPUSH", key, row)
  redis.call("PEXPIRE", key, LIFE)
  count_crawl(crawl.token, "k", 1)
  count_crawl(crawl.token, "K", #row)
end
