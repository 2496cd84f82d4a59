-- Runs (lives of a crawl) that stay idle for a while before they finish. Only reads.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include idle

-- Returns until when the run stays idle; 0: it need not.
local function idle_until(crawl)
  return stays_idle(crawl) and tonumber(redis.call("ZSCORE", BASE .. "idle-until", crawl.token) or 0) or 0
end
