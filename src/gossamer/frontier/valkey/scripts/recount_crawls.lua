#!lua flags=allow-oom
-- Compare the counters of crawls with the requests that are there: in queues, as their shares count them, to be queued
-- later, and leased. Requests that are counted and nowhere to be found are lost: they count as dropped from now on, so
-- that their run can end. Only a server that lost a part of its writes leaves anything to correct. (Token: 16 characters
-- that stand for a crawl. Run: one life of a crawl. Share: what a crawl has on a domain.)
-- Must hold: all of a crawl is read in one call, because requests move between these places meanwhile; and
-- `relist_queues` has corrected the shares before, because the queues themselves are not looked at.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 retention ms  4... tokens
-- Returns { counters that were wrong, { token, requests that are lost, ... }, tokens idle on this shard ... }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, egresses, ending, event, events, expiries, groups, h:{token}, idle, idle-until,
--         l:{worker}, later, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, running:{spider}|{appid}, running:|{appid},
--         s:{token}:{generation}:{bucket}, t:{token}, w:{scope}, wait:{pool}, x:{domain}, z:{token}
-- transition: queued -> dropped on lose
-- transition: later -> dropped on lose
-- transition: leased -> dropped on lose
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include starving
-- include terms
-- include entries
-- include end_reasons
-- include check_finished
-- include seen
local retention = tonumber(ARGV[3])
local wanted, wrong_counters = {}, {} -- by token; "": how many there were
for i = 4, #ARGV do
  -- `queued`, `later`, `leased`: requests by spider. `waits`: those to be queued later, by domain, spider and priority.
  -- `reserved`: pages of the budget that workers hold, by domain; "" for all domains together.
  wanted[ARGV[i]] = { queued = {}, later = {}, leased = {}, waits = {}, by_priority = {}, reserved = {},
    starving = {} }
end

-- Adds to one of many counts.
local function add(counts, name, count)
  counts[name] = (counts[name] or 0) + count
end

-- Notes what workers hold.
local function count_leases(key)
  local row = redis.call("HGETALL", key)
  for i = 1, #row, 2 do
    local run, token, _, spider, domain, _, entry
    if row[i] ~= "last" then
      run, token, _, spider, domain, _, entry = cmsgpack.unpack(row[i + 1])
    end
    local crawl = wanted[token] and crawl_of(token)
    if crawl and crawl.run == run then
      local found = wanted[token]
      add(found.leased, spider, 1)
      if spider ~= ASSETS then
        add(found.reserved, "", 1)
        if terms_of(token, terms_number_of(entry)).domain_max_pages then
          add(found.reserved, domain, 1)
        end
      end
    end
  end
end

for _, list in ipairs({ "workers", "dead" }) do
  for _, worker in ipairs(redis.call("ZRANGE", BASE .. list, 0, -1)) do
    count_leases(BASE .. "l:" .. worker)
  end
end
for _, member in ipairs(redis.call("ZRANGE", BASE .. "later", 0, -1)) do
  local token, run, priority, spider, domain = cmsgpack.unpack(member)
  local crawl = wanted[token] and crawl_of(token)
  if crawl and crawl.run == run and not end_reason(crawl, spider) then
    local found = wanted[token]
    add(found.later, spider, 1)
    found.waits[domain] = found.waits[domain] or {}
    add(found.waits[domain], spider .. "|" .. priority, 1)
  end
end

-- Compares one share of a crawl with what is there. `waits`: requests to be queued later, by spider and priority.
local function compare_share(crawl, domain, row, found)
  local token, waits, counted = crawl.token, found.waits[domain], nil
  for k = FIRST_QUEUE, #row, 3 do
    local spider, priority, count = row[k], row[k + 1], row[k + 2]
    if not end_reason(crawl, spider) then -- else they are dropped already
      if type(priority) == "number" then
        add(found.queued, spider, count)
        add(found.by_priority, spider .. ":" .. priority, count)
      else
        local name = spider .. "|" .. string.sub(priority, 2)
        waits, counted = waits or {}, counted or {}
        counted[name], waits[name] = count, waits[name] or 0
      end
    end
  end
  for name, count in pairs(waits or {}) do
    local missing = count - (counted and counted[name] or 0)
    if missing ~= 0 then
      local spider, priority = string.match(name, "^(.*)|(.-)$")
      change_share(token, domain, spider, "l" .. priority, missing)
      add(wrong_counters, "", 1)
    end
  end
  local held = found.reserved[domain] or 0
  local is_wrong = row[RESERVED] ~= row[FETCHED] + held
  if is_wrong then
    local share = share_of(token, domain)
    share.row[RESERVED], share.dirty = row[FETCHED] + held, true
    add(wrong_counters, "", 1)
  end
  -- No request in flight may come back without a page and end this. If it starves for the crawl's own budget, it will
  -- again.
  if found.starving[domain] and (is_wrong or held == 0) then
    redis.call("SREM", BASE .. "z:" .. token, domain)
    end_starving(crawl, domain)
  end
end

-- Compares all shares of a crawl, and returns how many domains are stored with requests.
local function compare_shares(crawl, found)
  local cursor, seen, domains = "0", {}, 0
  for _, domain in ipairs(redis.call("SMEMBERS", BASE .. "z:" .. crawl.token)) do found.starving[domain] = true end
  repeat -- a scan may return a domain twice
    local page
    cursor, page = unpack(redis.call("HSCAN", BASE .. "d:" .. crawl.token, cursor, "COUNT", 1000))
    for i = 1, #page, 2 do
      if not seen[page[i]] then
        local row = cmsgpack.unpack(page[i + 1])
        seen[page[i]], domains = true, domains + (#row >= FIRST_QUEUE and 1 or 0)
        compare_share(crawl, page[i], row, found)
      end
    end
  until cursor == "0"
  for domain in pairs(found.waits) do
    if not seen[domain] then compare_share(crawl, domain, { 0, 0 }, found) end
  end
  return domains
end

-- Sets a counter of a crawl. Returns by how much it was wrong.
local function correct(crawl, counters, field, count)
  local wrong = count - (counters[field] or 0)
  if wrong ~= 0 then
    count_crawl(crawl.token, field, wrong)
    add(wrong_counters, "", 1)
  end
  return wrong
end

-- Returns how many fingerprints of the seen-set are not counted. `add` marks URLs as seen before it queues them.
local function uncounted_fingerprints(crawl)
  load_seen(crawl)
  local found = crawl.only_fingerprint and 1 or 0
  for index = 0, crawl.only_fingerprint and -1 or crawl.buckets do -- one more: a split may not have been noted
    found = found + redis.call("SCARD", bucket_key(crawl, index))
  end
  if found ~= crawl.seen then
    count_crawl(crawl.token, "n", found - crawl.seen)
    add(wrong_counters, "", 1)
  end
  return found - crawl.seen
end

-- Compares the counters of a crawl with what was found. Returns how many requests are lost.
local function compare_counters(crawl, found, domains)
  local row, counters, spiders, done = redis.call("HGETALL", crawl.key), {}, {}, {}
  for i = 1, #row, 2 do
    local kind, rest = string.match(row[i], "^([aqlhpfFD]):(.*)$")
    if kind then
      counters[row[i]] = tonumber(row[i + 1])
      local spider = (kind == "F" or kind == "D" or kind == "p") and string.match(rest, "^(.*):[^:]*$") or rest
      spiders[spider] = true
      if kind == "f" or kind == "F" or kind == "D" then add(done, spider, row[i + 1]) end
      if kind == "p" then add(found.by_priority, rest, 0) end
    elseif row[i] == "doms" or row[i] == "R" then
      counters[row[i]] = tonumber(row[i + 1])
    end
  end
  for _, counts in ipairs({ found.queued, found.later, found.leased }) do
    for spider in pairs(counts) do spiders[spider] = true end
  end
  correct(crawl, counters, "doms", domains) -- change_share has counted its own changes
  if crawl.max_pages then
    crawl.reserved = crawl.fetched + (found.reserved[""] or 0)
    correct(crawl, counters, "R", crawl.reserved)
    end_starving_of_some(crawl, crawl.quota - crawl.reserved)
  end
  for name, count in pairs(found.by_priority) do correct(crawl, counters, "p:" .. name, count) end
  local lost, open, unqueued, first_spider = 0, 0, uncounted_fingerprints(crawl), next(spiders)
  for spider in pairs(spiders) do
    local queued, later, leased = found.queued[spider] or 0, found.later[spider] or 0, found.leased[spider] or 0
    local newly_queued = correct(crawl, counters, "q:" .. spider, queued)
    count_backlog(crawl.token, spider, newly_queued)
    count_app(crawl, spider, newly_queued + correct(crawl, counters, "l:" .. spider, later))
    correct(crawl, counters, "h:" .. spider, leased)
    open = open + queued + later + leased
    local missing = (counters["a:" .. spider] or 0) - (done[spider] or 0) - queued - later - leased
    if missing > 0 then
      count_done(crawl, "D:" .. spider .. ":lost", missing)
      lost = lost + missing
      add(wrong_counters, "", 1)
    elseif missing < 0 then
      count_crawl(crawl.token, "a:" .. spider, -missing)
      add(wrong_counters, "", 1)
      crawl.added, unqueued = crawl.added - missing, unqueued + missing
    end
  end
  if unqueued > 0 and first_spider then -- URLs that are seen and were never queued; which spider's is not known
    count_crawl(crawl.token, "a:" .. first_spider, unqueued)
    count_done(crawl, "D:" .. first_spider .. ":lost", unqueued)
    crawl.added, lost = crawl.added + unqueued, lost + unqueued
  end
  local held = redis.call("HEXISTS", crawl.key, "rebuild") -- counts as added (restore.lua)
  local wrong = crawl.added - crawl.done - open - held
  if wrong ~= 0 then add(wrong_counters, "", 1) end
  crawl.added = crawl.added - wrong
  return lost
end

local losses, idle = {}, {}
for token, found in pairs(wanted) do
  local crawl = crawl_of(token)
  if crawl then
    local before = wrong_counters[""]
    local lost = compare_counters(crawl, found, compare_shares(crawl, found))
    if wrong_counters[""] ~= before then
      count_crawl(token, "w", 1)
    end
    if lost > 0 then
      losses[#losses + 1], losses[#losses + 2] = token, lost
    end
    if check_finished(token, retention, false) then
      idle[#idle + 1] = token
    end
  end
end
write_all()
return { wrong_counters[""] or 0, losses, unpack(idle) }
