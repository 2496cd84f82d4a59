-- Crawls as this shard (a part of the frontier, on one server) knows them, each by its token (16 characters). A run is
-- one life of a crawl. All fields are stored in c:{token}: keys.py lists them, and a change of one needs another FORMAT
-- in identity.py.

local crawls = {} -- by token; false: not known here

-- Returns the crawl, or false where the shard does not know it. The script keeps its counters current while it runs.
-- Further arguments: names of counters that are to be read, too, because the script will change them (counters.lua).
local function crawl_of(token, ...)
  local crawl = crawls[token]
  if crawl ~= nil then return crawl end
  local key = BASE .. "c:" .. token
  local values = redis.call("HMGET", key, "run", "gen", "st", "crawl", "A", "Z", "parts", "t", ...)
  local run, gen, state, packed, added, done, parts, terms = unpack(values, 1, 8)
  crawls[token] = false -- until it is found
  if not run then return false end
  -- The crawl as codec.py packs it; the rate is { hits, seconds, moderated }.
  local app, _, pool, lifo, max_pages, rate, concurrency, idle_ms, keeps_failed, keeps_all = unpack(
    cmsgpack.unpack(packed), 1, 10)
  local reserved, quota, fetched, alone
  if max_pages then reserved, quota, fetched, alone = unpack(redis.call("HMGET", key, "R", "Q", "Y", "alone")) end
  -- `packed`: the crawl as the client packed it. `state`: "r" running, "f" finished, or a letter of an early end (see
  -- end_reasons.lua). A crawl whose `added` equals `done` has nothing left to do here.
  crawl = {
    token = token, key = key, run = run + 0, generation = gen, state = state, packed = packed,
    app = app, pool = pool, lifo = lifo, max_pages = max_pages, concurrency = concurrency, idle_ms = idle_ms or 0,
    keeps_failed = keeps_failed, keeps_all = keeps_all, -- failed requests without an answer, or all, are kept for retries
    requested_rate = rate and { hits = rate[1], window = rate[2] * 1000, moderated = rate[3] }, -- window in ms
    added = (added or 0) + 0, done = (done or 0) + 0, -- + 0 is quicker than tonumber
    -- The page budget of this shard, in pages, of a crawl that has one. `alone`: no other shard has a share in it.
    reserved = (reserved or 0) + 0, quota = (quota or 0) + 0, fetched = (fetched or 0) + 0, alone = alone,
    parts = parts and {}, -- how the spiders' parts ended, where any has; filled by end_reason
    first_terms = terms, -- the terms of the first submission, where they are short
    -- What the hash has of the counters that were read, by name; nil where none was.
    counters = ... and { A = added or 0, Z = done or 0 }, seen = nil, buckets = nil, only_fingerprint = nil, -- see load_seen
  }
  crawl.before = { added = crawl.added, done = crawl.done, seen = nil }
  for i = 1, #values - 8 do
    crawl.counters[(select(i, ...))] = values[8 + i] or 0
  end
  crawls[token] = crawl
  return crawl
end
