#!lua
-- Queue what the run has not seen: dedupe and enqueue in one step.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 run  5 generation  6 single: 1 where there is one shard  7 crawl (opaque)  8 digest of the terms
--       9 limits (msgpack) and terms (opaque)  10 version at which the home shard confirmed the run just now, else 0
--       11 call: "", or a name under which it is made only once  12 stopped spiders: "slink,eother"  13 retention ms
--       14 last: 1 when nothing more of this submission comes and nothing was new so far
--       15 tell: 1 when the positions of duplicates are wanted, too
--       then for each batch: spider, domain, priority, depth, unfiltered 1|0, extended 1|0, count,
--       and for each URL: fingerprint (decimal), tail (URL, or what the client packed)
-- Returns { "closed" } when the run was closed here since then, or is over (ask the home shard), { "purging" } when the
--         last run has to be purged first, or
--         { "ok", added, duplicates, dropped, reason of the dropped, shard became idle: 1|0, positions ... }: of what a cap
--         dropped, counted from 0, and of duplicates (if wanted), counted down from -1
-- include common
-- include seen
-- include throttle
-- include queues
-- include finish
-- include runs
local token, run, gen, confirmed = ARGV[3], tonumber(ARGV[4]), ARGV[5], tonumber(ARGV[10])
local once = ARGV[11]
if once ~= "" then
  local answer = redis.call("GET", P .. "call:" .. once)
  if answer then
    return cmsgpack.unpack(answer)
  end
end

local crawl, crawl_key = crawl_of(token), P .. "c:" .. token
local ahead = run_ahead(crawl, run, gen)
if ahead < 0 or (ahead == 0 and crawl.state == "f"
  and confirmed <= tonumber(redis.call("HGET", crawl_key, "closed") or 0)) then
  return { "closed" }
end
if ahead > 0 then
  crawl = begin_run(token, run, gen, ARGV[6], ARGV[7], ARGV[12])
  if not crawl then
    return { "purging" }
  end
elseif crawl.state == "f" then
  redis.call("HSET", crawl_key, "st", "r")
  crawl.state = "r"
end

local SHORT = 64 -- bytes: a hash with a longer value is kept in another form, which takes several times the memory
local limits = unpack_terms(ARGV[9])
local pending_cap = limits[3]
local header_number -- of the terms on this shard, once something is queued

local function terms_number()
  if not header_number then
    local key = P .. "t:" .. token
    if not crawl.terms and #ARGV[9] <= SHORT and redis.call("EXISTS", key) == 0 then
      redis.call("HSET", crawl_key, "t", ARGV[9])
      crawl.terms = ARGV[9]
    end
    if crawl.terms == ARGV[9] then
      header_number = 1
    else
      header_number = redis.call("HGET", key, "d" .. ARGV[8])
      if not header_number then
        header_number = redis.call("HLEN", key) / 2 + (crawl.terms and 2 or 1)
        redis.call("HSET", key, header_number, ARGV[9], "d" .. ARGV[8], header_number)
      end
      header_number = tonumber(header_number)
    end
  end
  return header_number
end

local added, duplicates, dropped, reason, rejected = 0, 0, 0, "", {}
local tell = ARGV[15] == "1"
local position = 0

local function duplicate(spider, at)
  duplicates = duplicates + 1
  tally(token, "L:" .. spider .. ":duplicate", 1)
  if tell then
    rejected[#rejected + 1] = -at - 1
  end
end

local i = 16
while i <= #ARGV do
  local spider, domain, priority, depth = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
  local unfiltered, extended, count = ARGV[i + 4] == "1", tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
  i = i + 7
  local stop = ended(crawl, spider) or (limits[1] > 0 and now >= limits[1] and "expired") or nil
  if stop then
    dropped, reason = dropped + count, stop
    tally(token, "L:" .. spider .. ":" .. stop, count)
  else
    local header = entry_header(extended, depth, terms_number())
    local room = pending_cap and (pending_cap - share_total(share_of(token, domain))) or INF
    local entries = {}
    for k = 0, count - 1 do
      local fingerprint = ARGV[i + 2 * k]
      if #entries >= room then
        if not unfiltered and is_seen(crawl, fingerprint) then
          duplicate(spider, position + k)
        else
          dropped, reason = dropped + 1, "budget"
          rejected[#rejected + 1] = position + k
          tally(token, "L:" .. spider .. ":budget", 1)
        end
      elseif mark_seen(crawl, fingerprint) or unfiltered then
        entries[#entries + 1] = header .. ARGV[i + 2 * k + 1]
      else
        duplicate(spider, position + k)
      end
    end
    if #entries > 0 then
      added = added + #entries
      count_added(crawl, spider, #entries)
      enqueue(crawl, spider, domain, priority, entries, false)
    end
  end
  position = position + count
  i = i + 2 * count
end
grow_seen(crawl)
-- A run that begins with nothing but duplicates is over at once; if the client dies before it says so, housekeeping looks.
local idle = 0
if added == 0 and crawl.added == crawl.done then
  if ARGV[14] == "1" then
    idle = check_done(token, tonumber(ARGV[13])) and 1 or 0
  elseif crawl.state == "r" then
    redis.call("ZADD", P .. "idle", now, token)
  end
end
local answer = { "ok", added, duplicates, dropped, reason, idle, unpack(rejected) }
if once ~= "" then
  redis.call("SET", P .. "call:" .. once, cmsgpack.pack(answer), "PX", 3600000)
end
write_all()
return answer
