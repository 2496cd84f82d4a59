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
  local run, gen, state, packed, seen, buckets, added, done, reserved, quota, fetched, parts, alone, only, terms =
    unpack(redis.call("HMGET", key, "run", "gen", "st", "crawl", "n", "b", "A", "Z", "R", "Q", "Y", "parts", "alone",
      "s", "t"))
  if not run then
    crawls[token] = false
    return false
  end
  -- The crawl as codec.py packs it; the rate is { hits, seconds, moderated }.
  local app, _, pool, lifo, max_pages, rate, concurrency, idle_ms, keeps_failed = unpack(
    cmsgpack.unpack(packed), 1, 9)
  -- `packed`: the crawl as the client packed it. `state`: "r" running, "f" finished, or a letter of an early end (see
  -- end_reasons.lua). A crawl whose `added` equals `done` has nothing left to do here.
  crawl = {
    token = token, key = key, run = run + 0, generation = gen, state = state, packed = packed,
    app = app, pool = pool, lifo = lifo, max_pages = max_pages, concurrency = concurrency, idle_ms = idle_ms or 0,
    keeps_failed = keeps_failed, -- requests that fail without an answer are kept, to be retried
    requested_rate = rate and { hits = rate[1], window = rate[2] * 1000, moderated = rate[3] }, -- window in ms
    -- Fingerprints in the seen-set, and its buckets.
    seen = (seen or 0) + 0, buckets = (buckets or 1) + 0, -- + 0 is quicker than tonumber
    added = (added or 0) + 0, done = (done or 0) + 0,
    -- The page budget of this shard, in pages. `alone`: no other shard has a share in it.
    reserved = (reserved or 0) + 0, quota = (quota or 0) + 0, fetched = (fetched or 0) + 0, alone = alone,
    parts = parts and {}, -- how the spiders' parts ended, where any has; filled by end_reason
    -- The fingerprint of a seen-set that has one; the terms of the first submission, where they are short.
    only_fingerprint = only, first_terms = terms,
  }
  crawl.before = { added = crawl.added, done = crawl.done, seen = crawl.seen }
  crawls[token] = crawl
  return crawl
end
