-- Leases (requests that workers hold) that end without a page. Must hold: what a lease reserved is returned once, and
-- the queues that wait for a page come back in the same call, or they would wait for the next one.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include assets
-- include starving
-- include terms
-- include entries

-- Returns what a lease had reserved of the page budgets: its request is not fetched now. Assets reserve nothing.
-- `limits`: of its terms, from terms_of.
local function return_page(crawl, spider, domain, limits)
  if limits.domain_max_pages and spider ~= ASSETS then
    local share = share_of(crawl.token, domain)
    share.row[RESERVED] = math.max(0, share.row[RESERVED] - 1)
    share.dirty = true
    if redis.call("SREM", BASE .. "z:" .. crawl.token, domain) == 1 then
      end_starving(crawl, domain)
    end
  end
  if crawl.max_pages and spider ~= ASSETS then
    crawl.reserved = crawl.reserved - 1
    count_crawl(crawl.token, "R", -1)
    end_starving_of_some(crawl, crawl.quota - crawl.reserved)
  end
end
