-- Queues of crawls, or of spiders' parts of them, that have ended. Must hold: a queue and its count in the share of its
-- crawl (what the crawl has on a domain) go together, or the domain would be shown as having requests for ever.
-- Names that are not declared below come from these files or their includes:
-- include queues

-- Removes a queue, or the count of its requests that are to be queued later ("l<priority>"). All of them were counted
-- as dropped when their crawl or part ended.
local function discard_queue(token, group, spider, domain, priority)
  if type(priority) == "number" then
    redis.call("UNLINK", queue_key(token, spider, domain, priority))
    change_agenda("ZREM", group, domain, token .. "|" .. priority)
  end
  local share = share_of(token, domain)
  change_share(share, spider, priority, -share_count(share, spider, priority))
end
