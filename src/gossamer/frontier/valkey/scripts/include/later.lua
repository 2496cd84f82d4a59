-- Requests that are to be queued later: retries and postponed ones. Must hold: they are counted in the same call that
-- adds them to the key `later` or takes them out.
-- Names that are not declared below come from these files or their includes:
-- include shares
-- include ready

-- Counts requests that are to be queued later; a negative count for those that are not any more.
local function count_later(token, spider, domain, priority, count)
  count_crawl(token, "l:" .. spider, count)
  count_app(crawl_of(token), spider, count)
  change_share(token, domain, spider, "l" .. priority, count)
end
