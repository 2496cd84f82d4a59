-- What every script shares: the shard's keys, the clock, and writes that are gathered and made once at the end.
-- KEYS  1 the shard's key prefix, e.g. "gossamer:{0}:"; its braces keep every key of the script in one slot
-- ARGV  1 "~" and the time in milliseconds that the caller expects; "" when it expects none; for tests, the time itself
local P = KEYS[1]
local INF = math.huge
local STEP = 1000 -- ms: a clock that differs by more has been set, or the call was held up on its way
-- The shard's time goes on evenly when the server's clock is set; nearly all of the frontier's times are in it. `wall` is
-- the server's own: for times that people name and read. `forgot`: when keys with a life were last lost to such a change.
local now, wall, forgot = tonumber(ARGV[1]), nil, 0
wall = now
if not now then
  local time, clock = redis.call("TIME"), redis.call("HMGET", P .. "clock", "offset", "forgot")
  wall = time[1] * 1000 + time[2] / 1000
  now, forgot = wall + tonumber(clock[1] or 0), tonumber(clock[2] or 0)
  local expected = tonumber(string.sub(ARGV[1], 2))
  if expected and math.abs(now - expected) > STEP then
    return redis.status_reply("CLOCK") -- nothing was done
  end
end

-- State of a crawl on a shard: "r" running, "f" finished, and the ways to end early, which are also reasons.
local REASON = { s = "stopped", e = "expired", b = "budget", f = "stopped" }

-- Whether this worker is registered here. One that was taken for dead and calls again did not die.
local function knows(worker)
  if redis.call("ZSCORE", P .. "workers", worker) then
    return true
  end
  redis.call("ZREM", P .. "deaths", worker)
  return false
end

local tallies, crawls = {}, {}
local waiting = {} -- how many more requests wait in queues, by pool and spider ("<pool>|<spider>")
local pending = {} -- how many more requests wait, in queues or for a retry, by application and spider

-- Adds to a crawl's counter; written once per script by write_all.
local function tally(token, field, count)
  local fields = tallies[token]
  if not fields then
    fields = {}
    tallies[token] = fields
  end
  fields[field] = (fields[field] or 0) + count
end

-- Adds to a hash's counters. One that is 0 then is removed, so that an empty hash is gone.
local function add_counts(key, counts)
  for field, count in pairs(counts) do
    if count ~= 0 and redis.call("HINCRBY", key, field, count) == 0 then
      redis.call("HDEL", key, field)
    end
  end
end

local function write_tallies()
  for token, crawl in pairs(crawls) do
    if crawl and crawl.added ~= crawl.added_before then
      tally(token, "A", crawl.added - crawl.added_before)
      crawl.added_before = crawl.added
    end
    if crawl and crawl.done ~= crawl.done_before then
      tally(token, "Z", crawl.done - crawl.done_before)
      crawl.done_before = crawl.done
    end
    if crawl and crawl.new and not tallies[token] and next(crawl.new) then
      tallies[token] = {}
    end
  end
  for token, fields in pairs(tallies) do
    local key = P .. "c:" .. token
    local crawl = crawls[token]
    if crawl and crawl.new then -- no counter is there yet: one command for all of them
      local row = {}
      for field, value in pairs(crawl.new) do
        row[#row + 1], row[#row + 2] = field, value
      end
      for field, count in pairs(fields) do
        if count ~= 0 then
          row[#row + 1], row[#row + 2] = field, count
        end
      end
      for first = 1, #row, 1000 do
        redis.call("HSET", key, unpack(row, first, math.min(first + 999, #row)))
      end
      crawl.new, fields = false, {}
    end
    add_counts(key, fields)
  end
  tallies = {}
  add_counts(P .. "backlog", waiting)
  waiting = {}
  for app, spiders in pairs(pending) do
    add_counts(P .. "app:" .. app, spiders)
  end
  pending = {}
end

-- The crawl as this shard knows it, or false. Counters in it are kept current while the script runs.
local function crawl_of(token)
  local crawl = crawls[token]
  if crawl ~= nil then
    return crawl
  end
  local v = redis.call("HMGET", P .. "c:" .. token, "run", "gen", "st", "crawl", "n", "b", "A", "Z", "R", "Q", "Y",
    "parts", "alone", "s", "t")
  if not v[1] then
    crawls[token] = false
    return false
  end
  -- appid, crawlid, pool, lifo, max_pages, { hits, seconds, moderated }, concurrency, idle ms
  local c = cmsgpack.unpack(v[4])
  local rate = c[6]
  crawl = {
    token = token, run = tonumber(v[1]), gen = v[2], state = v[3],
    app = c[1], pool = c[3], lifo = c[4], max_pages = c[5], cap = c[7], idle_ms = c[8] or 0,
    wish = rate and { rate[1], rate[2] * 1000, rate[3] },
    seen = tonumber(v[5] or 0), buckets = tonumber(v[6] or 1),
    added = tonumber(v[7] or 0), done = tonumber(v[8] or 0),
    reserved = tonumber(v[9] or 0), quota = tonumber(v[10] or 0), fetched = tonumber(v[11] or 0),
    parts = v[12] and {}, alone = v[13],
    only = v[14], -- the fingerprint of a seen-set of one
    terms = v[15], -- the first submission's, where they are short
  }
  crawl.added_before, crawl.done_before = crawl.added, crawl.done
  crawls[token] = crawl
  return crawl
end

-- Why this spider's part of the crawl takes and gives nothing more; nil while it runs.
local function ended(crawl, spider)
  if crawl.state ~= "r" then
    return REASON[crawl.state]
  end
  if crawl.parts then
    local part = crawl.parts[spider]
    if part == nil then
      part = redis.call("HGET", P .. "c:" .. crawl.token, "st:" .. spider)
      crawl.parts[spider] = part
    end
    return part and REASON[part] or nil
  end
  return nil
end

local function count_waiting(token, spider, count)
  local crawl = crawls[token]
  if crawl then
    local home = crawl.pool .. "|" .. spider
    waiting[home] = (waiting[home] or 0) + count
  end
end

-- Counts what waits of a crawl's application, in queues or for a retry.
local function count_pending(crawl, spider, count)
  local mine = pending[crawl.app]
  if not mine then
    mine = {}
    pending[crawl.app] = mine
  end
  mine[spider] = (mine[spider] or 0) + count
end

local queued_fields = {}

-- Counts what waits in queues, or (negative) waits no more.
local function count_queued(token, spider, priority, count)
  local fields = queued_fields[spider]
  if not fields then
    fields = { all = "q:" .. spider }
    queued_fields[spider] = fields
  end
  local field = fields[priority]
  if not field then
    field = "p:" .. spider .. ":" .. priority
    fields[priority] = field
  end
  count_waiting(token, spider, count)
  if crawls[token] then
    count_pending(crawls[token], spider, count)
  end
  tally(token, fields.all, count)
  tally(token, field, count)
end

local function count_added(crawl, spider, count)
  crawl.added = crawl.added + count
  tally(crawl.token, "a:" .. spider, count)
end

-- Ends `count` requests: field is "f:<spider>", "F:<spider>:<reason>" (failed) or "D:<spider>:<reason>" (dropped).
local function count_done(crawl, field, count)
  crawl.done = crawl.done + count
  tally(crawl.token, field, count)
end

local terms = {}

-- Limits come as msgpack, an opaque blob right behind them: { expires in ms or 0, domain_max_pages, domain_max_pending, blob }.
local function unpack_terms(raw)
  local offset, found = cmsgpack.unpack_one(raw)
  found[4] = offset > 0 and string.sub(raw, offset + 1) or ""
  return found
end

local function terms_of(token, number)
  local known = terms[token]
  if not known then
    known = {}
    terms[token] = known
  end
  local found = known[number]
  if not found then
    local crawl = crawl_of(token)
    local raw = number == 1 and crawl and crawl.terms or redis.call("HGET", P .. "t:" .. token, number)
    found = raw and unpack_terms(raw) or { 0, false, false, "" }
    known[number] = found
  end
  return found
end

-- An entry: 7 bytes of header, then the URL or what the client packed.
-- flags (1: extended, 2+4: deaths, 8: see deaths.lua), attempt, depth (2 bytes), number of its terms (3 bytes)
local function entry_terms(entry)
  local a, b, c = string.byte(entry, 5, 7)
  return a * 65536 + b * 256 + c
end

local function entry_header(extended, depth, number)
  if depth > 65535 then depth = 65535 end
  return string.char(extended, 0, math.floor(depth / 256), depth % 256,
    math.floor(number / 65536), math.floor(number / 256) % 256, number % 256)
end

local turn

-- Queues created by one script share a turn; each later one comes behind it.
local function next_turn()
  turn = turn or redis.call("HINCRBY", P .. "n", "turn", 1)
  return turn
end

-- A command with any number of arguments, a thousand at a time (Lua's stack is small).
local function push_pairs(command, arguments)
  for first = 1, #arguments, 1000 do
    redis.call(command, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
end

-- The same behind a key; the last reply.
local function push(command, key, arguments)
  local reply
  for first = 1, #arguments, 1000 do
    reply = redis.call(command, key, unpack(arguments, first, math.min(first + 999, #arguments)))
  end
  return reply
end
