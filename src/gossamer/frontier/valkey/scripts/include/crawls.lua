-- Crawls as this shard knows them.

local crawls = {} -- by token; false: not known here

-- Returns the crawl, or false where the shard does not know it. The script keeps its counters current while it runs.
local function crawl_of(token)
  local crawl = crawls[token]
  if crawl ~= nil then
    return crawl
  end
  local key = BASE .. "c:" .. token
  local v = redis.call("HMGET", key, "run", "gen", "st", "crawl", "n", "b", "A", "Z", "R", "Q", "Y", "parts", "alone",
    "s", "t")
  if not v[1] then
    crawls[token] = false
    return false
  end
  -- appid, crawlid, pool, lifo, max_pages, { hits, seconds, moderated }, concurrency, idle ms: see codec.py
  local c = cmsgpack.unpack(v[4])
  local rate = c[6]
  crawl = {
    token = token, key = key, run = tonumber(v[1]), generation = v[2], state = v[3],
    app = c[1], pool = c[3], lifo = c[4], max_pages = c[5], concurrency = c[7], idle_ms = c[8] or 0,
    requested_rate = rate and { rate[1], rate[2] * 1000, rate[3] }, -- hits, window in ms, moderated
    seen = tonumber(v[5] or 0), buckets = tonumber(v[6] or 1), -- fingerprints in the seen-set, and its buckets
    added = tonumber(v[7] or 0), done = tonumber(v[8] or 0),
    reserved = tonumber(v[9] or 0), quota = tonumber(v[10] or 0), fetched = tonumber(v[11] or 0), -- the page budget
    parts = v[12] and {}, -- how the spiders' parts ended, where any has; filled by end_reason
    alone = v[13], -- no other shard has a share in its page budget
    only_fingerprint = v[14], -- of a seen-set that has one
    first_terms = v[15], -- of the first submission, where they are short
  }
  crawl.added_before, crawl.done_before = crawl.added, crawl.done
  crawls[token] = crawl
  return crawl
end
