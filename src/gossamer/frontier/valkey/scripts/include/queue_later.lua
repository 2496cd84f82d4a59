-- Requests that come back from a worker, and are to be queued later. Fixed, because they are stored: the fields of a
-- member of `later`, and the place of the attempt in an entry (a packed request, see entries.lua).
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include later

-- Keeps a request until `due`. The next lease after that puts it into its queue. `request`: { priority, spider, domain,
-- entry }.
local function queue_later(crawl, request, due)
  local priority, spider, domain, entry = unpack(request)
  redis.call("ZADD", BASE .. "later", due, cmsgpack.pack(crawl.token, crawl.run, priority, spider, domain, entry))
  count_later(crawl.token, spider, domain, priority, 1)
  wake(crawl.pool, due)
end

-- Returns the entry with one attempt more; 255 is the most that fits.
local function with_attempt(entry)
  return string.sub(entry, 1, 1) .. string.char(math.min(255, string.byte(entry, 2) + 1)) .. string.sub(entry, 3)
end
