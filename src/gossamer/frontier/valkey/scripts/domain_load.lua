#!lua flags=allow-oom
-- Return what limits the requests to a domain now: each budget with the hits (fetches) in its window, and the requests in
-- flight. Only reads.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 domain  4 spider: of a policy that counts each spider alone
--       5 token (16 characters that stand for a crawl) of the crawl whose requests are meant, or "": of any
-- Returns { blocked until ms by the server's clock or "", requests in flight, most of them or "" for any number,
--         1 where a policy holds all requests back, then for each budget: its cause (policy, crawl: the rate that it asks
--         for, robots: the delay of robots.txt), hits, window in ms, hits in the window that ends now }
-- Touches (see keys.py) c:{token}, clock, policy, w:{scope}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include crawls
-- include windows
local domain, token = ARGV[3], ARGV[5]
local policy, block = policy_of(domain), block_of(domain)
local crawl = token ~= "" and crawl_of(token) or nil
local rate = crawl and crawl.requested_rate
local budgets = budgets_of(policy, crawl, domain)
local record = record_of(scope_of(policy, ARGV[4], domain, ""))
local causes = { (policy.explicit or not rate) and "policy" or "crawl" }
causes[2] = policy.explicit and rate and "crawl" or "robots"
causes[3] = "robots"
local blocked, most = block[BLOCK_ENDS], budgets.concurrency
local reply = {
  blocked > now and string.format("%.3f", blocked + wall - now) or "", record[IN_FLIGHT],
  most < INF and most or "", policy.off and 1 or 0,
}
for i = 1, #budgets do
  local budget, used = budgets[i], 0
  for k = HITS, #record - 1, 2 do
    used = used + (record[k] > now - budget.window and record[k + 1] or 0)
  end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = causes[i], budget.hits, string.format("%.3f", budget.window), used
end
return reply
