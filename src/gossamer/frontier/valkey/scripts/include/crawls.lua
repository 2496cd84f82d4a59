-- Crawls as this shard (a part of the frontier, on one server) knows them, each by its token (16 characters). A run is
-- one life of a crawl. All fields are stored in c:{token}: keys.py lists them, and a change of one needs another FORMAT
-- in identity.py. The names of the Lua fields may be changed, here and in the scripts that use them.

local crawls = {} -- by token; false: not known here

-- Returns the crawl, or false where the shard does not know it. The script keeps its counters current while it runs.
local function crawl_of(token)
  local crawl = crawls[token]
  if crawl ~= nil then
    return crawl
  end
  local key = BASE .. "c:" .. token
  local row = redis.call("HMGET", key, "run", "gen", "st", "crawl", "n", "b", "A", "Z", "R", "Q", "Y", "parts", "alone",
    "s", "t")
  if not row[1] then
    crawls[token] = false
    return false
  end
  -- appid, crawlid, pool, lifo, max_pages, { hits, seconds, moderated }, concurrency, idle ms, keep failed:
  -- see codec.py
  local packed = cmsgpack.unpack(row[4])
  local rate = packed[6]
  -- `state`: "r" running, "f" finished, or a letter of an early end (see end_reasons.lua). A crawl whose `added` equals
  -- `done` has nothing left to do here.
  crawl = {
    token = token, key = key, run = tonumber(row[1]), generation = row[2], state = row[3],
    app = packed[1], pool = packed[3], lifo = packed[4], max_pages = packed[5], concurrency = packed[7],
    idle_ms = packed[8] or 0,
    keeps_failed = packed[9], -- requests that fail without an answer are kept, to be retried
    requested_rate = rate and { rate[1], rate[2] * 1000, rate[3] }, -- hits, window in ms, moderated
    -- Fingerprints in the seen-set, and its buckets.
    seen = tonumber(row[5] or 0), buckets = tonumber(row[6] or 1),
    added = tonumber(row[7] or 0), done = tonumber(row[8] or 0),
    -- The page budget of this shard, in pages.
    reserved = tonumber(row[9] or 0), quota = tonumber(row[10] or 0), fetched = tonumber(row[11] or 0),
    parts = row[12] and {}, -- how the spiders' parts ended, where any has; filled by end_reason
    alone = row[13], -- no other shard has a share in its page budget
    only_fingerprint = row[14], -- of a seen-set that has one
    first_terms = row[15], -- of the first submission, where they are short
  }
  crawl.added_before, crawl.done_before = crawl.added, crawl.done
  crawls[token] = crawl
  return crawl
end
