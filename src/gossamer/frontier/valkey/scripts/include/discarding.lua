-- Queues of crawls, or of spiders' parts of them, that have ended. Must hold: a queue and its count in the share of its
-- crawl (what the crawl has on a domain) go together, or the domain would be shown as having requests for ever.
-- INF is in shard.lua; other names that are not declared below, in these files or their includes:
-- include queues

-- Removes a queue, or the count of its requests that are to be queued later ("l<priority>"). All of them were counted
-- as dropped when their crawl or part ended.
local function discard_queue(token, group, spider, domain, priority)
  if type(priority) == "number" then
    redis.call("UNLINK", queue_key(token, spider, domain, priority))
    change_agenda("ZREM", group, domain, token .. "|" .. priority)
  end
  change_share(token, domain, spider, priority, -INF) -- all of them
end
