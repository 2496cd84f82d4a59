-- How crawls, and spiders' parts of them, have ended. The letters are stored, and the words are counted under and read
-- by clients: fixed.
-- Names that are not declared below come from these files or their includes:
-- include assets
-- include crawls
-- include lanes

-- State of a crawl, or of a spider's part of it, on a shard: "r" is running, "f" finished; "p" paused, which is running
-- without leases (pause_run.lua). The others end it early: "s" stopped, "e" expired, "b" its page budget is used up. Requests that come back later are dropped for this reason.
local END_REASONS = { s = "stopped", e = "expired", b = "budget", f = "stopped" }

-- Why this spider's part of the crawl neither takes nor gives out requests any more; nil while it runs. A page budget
-- that is used up does not end the assets.
local function end_reason(crawl, spider)
  if crawl.state ~= "r" and not (crawl.state == "b" and spider == ASSETS) then
    return END_REASONS[crawl.state]
  end
  if not crawl.parts then return nil end
  local parts, name = crawl.parts, spider_of(spider)
  if parts[name] == nil then parts[name] = redis.call("HGET", crawl.key, "st:" .. name) end
  return parts[name] and END_REASONS[parts[name]] or nil
end
