#!lua flags=allow-oom
-- Lease requests that are due to a worker. In one step they leave their queues, their hits (fetches, as the rate limits
-- count them) are charged for the times at which they are to start, and the leases are stored for `settle`.
-- Words: token: 16 characters that stand for a crawl; terms: the options that one submission carries; share: a crawl's
-- counts on one domain; group: "<pool>|<spider>", the workers that may lease a request; agenda: the queues of a domain
-- in a group, the next one first; band: one of five ranges of priorities; scope: what shares one rate limit; egress:
-- the address that requests leave from; reserved, quota: pages of a crawl's page budget that this shard has leased or
-- spent, and may lease. now and starts: ms of the shard's clock; wall: epoch ms. The includes define the rest. Steps: a
-- repeated call gets its leases again; due retries join their queues; requests leave the queues of ready domains, band
-- by band, spider by spider; the leases are stored. May be changed: arguments and reply, with session.py and
-- leaseholder.py (each release loads its own scripts), and the numbers that bound one call or read (MOST_DOMAINS,
-- MOST_DROPPED, the count after LIMIT, 64 and 1000 in math.min): more make a call longer, fewer need more calls. Must
-- hold: CALL; counter fields D:, h: and R (keys.py); a stored lease's fields (see `taken`), the ids, the field `last`.
-- `settle`, `reclaim` and `request_redirect` of another release read them, and workers hold the ids.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 call number  5 limit  6 pool  7 egress  8 retention ms
--       9 wait: 1 to be woken when less than the limit was found
--       10 joins: 1 in the worker's first call to this shard  11... spiders, the first is served first
-- Returns { "stale" } where the worker is not registered, or
--         { "ok", ms until the next is due or "", { leases }, { crawls }, { terms }, { starved tokens },
--         { idle tokens }, 1 when this egress is new here and has to be enrolled }
--   leases: id, token, run, spider, domain, priority, entry, us from this call to its start,
--   even gap in us (negative: its domain is blacklisted, and the worker is to drop it), ...
--   crawls: token, generation, crawl, ...
--   terms: token, number, blob, ...
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, dead, deaths, egresses, ending, event, events, expiries, groups, h:{token}, idle,
--         idle-until, l:{worker}, later, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         running:{spider}|{appid}, running:|{appid}, starving, t:{token}, w:{scope}, wait:{pool}, workers,
--         x:{domain}, z:{token}
-- transition: queued -> leased on lease
-- transition: later -> queued on due
-- transition: queued -> dropped on expire
-- transition: queued -> dropped on exhaust
-- include shard
-- include workers
-- include release
-- include hits
-- include load_records
-- include terms
-- include deaths
-- include later
-- include discarding
-- include resting
-- include check_finished
local worker, number, limit, pool, egress = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local retention, leases_key = tonumber(ARGV[8]), BASE .. "l:" .. worker
local CALL = 2 ^ 20 -- ids that a call may give; session.py computes with the same
-- Domains that one call looks at, and requests that it drops. Tuning only: the next call goes on.
local MOST_DOMAINS, MOST_DROPPED = 1000, 2000

if not is_registered(worker)
  and (ARGV[10] ~= "1" or redis.call("ZSCORE", BASE .. "dead", worker)) then
  return { "stale" }
end
redis.call("ZADD", BASE .. "workers", now, worker)

-- --- the answer ----------------------------------------------------------------------------------------------------

local leases, crawl_rows, terms_rows, starved, idle = {}, {}, {}, {}, {}
local shown, last_shown = {}, {}

-- Returns an entry (a packed request, see entries.lua) as a worker gets it: with the number of workers that died while
-- they held it (flags 2 and 4), without their names.
local function entry_for_worker(entry)
  local flags = string.byte(entry, 1)
  if flags < SUSPECT then
    return entry
  end
  local _, rest = names_in(entry)
  return string.char(flags % 2 + 2 * deaths_of(entry)) .. string.sub(entry, 2, 7) .. string.sub(entry, rest)
end

-- Adds to the answer what the worker has to know of a crawl's run and of terms, once each.
local function show_crawl(token, run, terms_number)
  local name = token .. run
  if not shown[name] then
    shown[name] = true
    local row = redis.call("HMGET", BASE .. "c:" .. token, "gen", "crawl")
    crawl_rows[#crawl_rows + 1] = token
    crawl_rows[#crawl_rows + 1] = row[1] or "0"
    crawl_rows[#crawl_rows + 1] = row[2] or ""
  end
  name = token .. "/" .. terms_number
  if not shown[name] then
    shown[name] = true
    terms_rows[#terms_rows + 1] = token
    terms_rows[#terms_rows + 1] = terms_number
    terms_rows[#terms_rows + 1] = terms_of(token, terms_number)[5] -- the blob: what only workers read
  end
end

-- Adds a lease to the answer. `called`: the time of the call that got it.
local function show_lease(called, id, lease)
  local run, token, priority, spider, domain, _, entry, _, _, start, spacing = unpack(lease)
  local n = #leases
  leases[n + 1], leases[n + 2], leases[n + 3], leases[n + 4] = id, token, run, spider
  leases[n + 5], leases[n + 6], leases[n + 7] = domain, priority, entry_for_worker(entry)
  leases[n + 8], leases[n + 9] = math.max(0, start - called) * 1000, spacing * 1000 -- us, whole as a reply needs
  local terms_number = terms_number_of(entry)
  if token ~= last_shown[1] or run ~= last_shown[2] or terms_number ~= last_shown[3] then
    last_shown = { token, run, terms_number }
    show_crawl(token, run, terms_number)
  end
end

-- Ids must come from the number of the worker's call, not from a counter of this shard: after a failover that lost some
-- of its last steps, a counter would give an id again that the worker holds for another request. A worker's calls are
-- numbered through all its names: it may settle what it held under an earlier name under its new one.
local function lease_id(first, index)
  return string.format("%.0f", first + index)
end

-- A repeated call, whose reply was lost, must get the same answer, or its leases would be held by a worker that does
-- not know them. It gets it from the leases themselves. An earlier call than the last one was delayed on its way, and
-- its answer came long since: its ids have been used.
local last_call = redis.call("HGET", leases_key, "last")
if last_call then
  local done, first, count, called = string.match(last_call, "^(%d+) (%d+) (%d+) (%S+)$")
  if done == number then
    for index = 0, tonumber(count) - 1 do
      local id = lease_id(tonumber(first), index)
      local packed = redis.call("HGET", leases_key, id)
      if packed then
        local lease = { cmsgpack.unpack(packed) }
        local crawl = crawl_of(lease[2])
        if crawl and crawl.run == lease[1] then
          show_lease(tonumber(called), id, lease)
        else -- its run was given up; a fresh one may have forgotten its terms
          redis.call("HDEL", leases_key, id)
          release(lease[6], lease[5])
        end
      end
    end
  end
  if tonumber(number) <= tonumber(done) then
    write_all()
    return { "ok", "0", leases, crawl_rows, terms_rows, {}, {}, 0 } -- the next call finds what is due by now
  end
end

-- --- requests that are due -----------------------------------------------------------------------------------------

-- Requests whose time has come join their queues.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "later", "-inf", now, "LIMIT", 0, 256)) do
  local token, run, priority, spider, domain, entry = cmsgpack.unpack(member)
  redis.call("ZREM", BASE .. "later", member)
  local crawl = crawl_of(token)
  if crawl and crawl.run == run and not end_reason(crawl, spider) then
    count_later(token, spider, domain, priority, -1)
    enqueue(crawl, spider, domain, priority, { entry }, false)
  end
end

local dropped = 0
-- Of each lease: { run, token, priority, spider, domain, scope, entry, fingerprint of its last hop, answer to that,
-- start, even gap }. Stored in this order: a change needs another FORMAT in identity.py. A hop is a redirect for which
-- the worker asked for a hit (`request_redirect`).
local taken = {}

-- Sets a domain's queues of this crawl aside until a page of its budget comes back.
local function starve(crawl, group, domain, priority)
  change_agenda("ZREM", group, domain, crawl.token .. "|" .. priority)
  redis.call("SADD", BASE .. "z:" .. crawl.token, domain)
  redis.call("SADD", BASE .. "starving", crawl.token)
end

-- Lets a queue rest if only its own crawl's requested rate holds it up, and a crawl with another rate waits behind it.
-- Returns true if so.
local function give_way(group, domain, priority, scope, crawl, policy, budgets)
  local at = next_allowed(scope, policy, budgets)
  if at <= now or #crawls_with_other_rates(group, domain, crawl) == 0 then
    return false
  end
  rest_queue(group, domain, crawl.token, priority, at)
  return true
end

-- Takes the entries (oldest first) that may be leased, and drops those whose limits forbid it: terms_of returns
-- { when they expire (epoch ms), most pages on one domain, ... }. Returns how many were taken, how many were dropped,
-- and whether the rest was put back: all pages of the domain are reserved, and one that is not fetched may come back.
local function take_entries(crawl, spider, domain, priority, scope, hits, entries)
  local token, count, gone = crawl.token, 0, 0
  local share = share_of(token, domain)
  for index, entry in ipairs(entries) do
    local limits = terms_of(token, terms_number_of(entry))
    local most_pages = spider ~= ASSETS and limits[2]
    if limits[1] > 0 and wall >= limits[1] then
      count_done(crawl, "D:" .. spider .. ":expired", 1)
      gone = gone + 1
    elseif most_pages and share.row[RESERVED] >= most_pages then
      if share.row[FETCHED] < most_pages then
        local back = {}
        for k = #entries, index, -1 do
          back[#back + 1] = entries[k]
        end
        call_on_key(crawl.lifo and "RPUSH" or "LPUSH", queue_key(token, spider, domain, priority), back)
        return count, gone, true
      end
      count_done(crawl, "D:" .. spider .. ":budget", 1)
      gone = gone + 1
    else
      if most_pages then
        share.row[RESERVED] = share.row[RESERVED] + 1
        share.dirty = true
      end
      count = count + 1
      taken[#taken + 1] = { crawl.run, token, priority, spider, domain, scope, entry, "", 0, hits.starts[count],
        hits.spacing }
    end
  end
  return count, gone, false
end

-- Leases what is free at the head of one queue. Returns true where the domain may have more. `second`: the queue behind
-- it. In this order: a queue whose crawl or part has ended is discarded; a blocked domain gets nothing; without a free
-- hit, the queue may give way; without a page left in the crawl's budget, it is set aside; else entries are taken.
-- Must leave share, counters, agenda and record of hits up to date: the next queue of the domain is judged by them.
local function take(group, spider, domain, lease_egress, policy, token, priority, second)
  local crawl = crawl_of(token)
  if not crawl or end_reason(crawl, spider) then
    discard_queue(token, group, spider, domain, priority)
    return true
  end
  if block_of(domain)[1] > now and not policy.drops then
    return false
  end
  local scope = scope_of(policy, spider, domain, lease_egress)
  local record = record_of(scope)
  local budgets = budgets_of(policy, crawl, domain)
  local most = math.min(limit - #taken, concurrency_of(policy, crawl, budgets) - record[IN_FLIGHT])
  local hits = free_hits(record, policy, budgets, most)
  if policy.drops then
    hits.spacing = -1
  end
  local allowed, free = #hits.starts, #hits.starts
  if free == 0 then
    return give_way(group, domain, priority, scope, crawl, policy, budgets)
  end
  if crawl.max_pages and spider ~= ASSETS then
    if crawl.reserved >= crawl.quota then
      starve(crawl, group, domain, priority)
      starved[token] = true
      return true
    end
    free = math.min(free, crawl.quota - crawl.reserved)
  end
  local takes_turns = second and tonumber(string.sub(second, 18)) == priority -- behind the token (16) and "|"
  if takes_turns then
    free = 1
  end
  local command = crawl.lifo and "RPOP" or "LPOP"
  local entries = redis.call(command, queue_key(token, spider, domain, priority), math.min(free, 1000)) or {}
  local count, gone, is_starved = take_entries(crawl, spider, domain, priority, scope, hits, entries)
  if gone > 0 and check_finished(token, retention, false) then
    idle[#idle + 1] = token
  end
  if is_starved then
    starve(crawl, group, domain, priority)
  end
  dropped = dropped + gone
  local left = gone + count -- entries that left the queue
  local share = share_of(token, domain)
  change_share(share, spider, priority, -left)
  count_queued(token, spider, priority, -left)
  if count > 0 then
    count_crawl(token, "h:" .. spider, count)
    charge(scope, budgets, hits, count)
    record[IN_FLIGHT] = record[IN_FLIGHT] + count
    if crawl.max_pages and spider ~= ASSETS then
      crawl.reserved = crawl.reserved + count
      count_crawl(token, "R", count)
    end
  end
  if share_count(share, spider, priority) == 0 then
    change_agenda("ZREM", group, domain, token .. "|" .. priority)
  elseif takes_turns and not is_starved then
    local turn_behind = redis.call("HINCRBY", BASE .. "n", "turn", 1)
    change_agenda("ZADD", group, domain, "XX", agenda_score(priority, turn_behind), token .. "|" .. priority)
  end
  if count == allowed and gone == 0 and not second then
    return false -- nothing is free any more, and no other queue could be allowed what this one is not
  end
  return left > 0 or is_starved
end

-- --- the domains that are ready ------------------------------------------------------------------------------------

-- Reads with few commands what leasing from these domains needs.
local function load_domains(group, domains, spider, lease_egress)
  load_policies(domains)
  local keys, scopes = {}, {}
  for index, domain in ipairs(domains) do
    keys[index] = BASE .. "x:" .. domain
    scopes[index] = scope_of(policies[domain], spider, domain, lease_egress)
  end
  for index, packed in ipairs(redis.call("MGET", unpack(keys))) do
    blocks[domains[index]] = packed and cmsgpack.unpack(packed) or NO_BLOCK
  end
  load_records(scopes)
  local domains_by_crawl = {}
  for _, domain in ipairs(domains) do
    local token = head_of(group, domain)
    if token then
      local mine = domains_by_crawl[token] or {}
      domains_by_crawl[token] = mine
      mine[#mine + 1] = domain
    end
  end
  for token, mine in pairs(domains_by_crawl) do
    load_shares(token, mine)
  end
end

local next_due, inspected = INF, 0

-- Leases from the queues of one domain that stand in this band.
local function lease_from_domain(group, spider, band, domain, lease_egress)
  end_rests(group, domain)
  local more, policy = true, policy_of(domain)
  while more and #taken < limit and dropped < MOST_DROPPED do
    local token, priority, resting, second = head_of(group, domain)
    if not token or resting or band_of(priority) ~= band then
      break
    end
    more = take(group, spider, domain, lease_egress, policy, token, priority, second)
  end
end

-- Leases from the domains of one band, either those of this egress or (nil) those without one.
local function lease_from_band(group, spider, band, lease_egress)
  local key = ready_key(group, band, lease_egress)
  while #taken < limit and inspected < MOST_DOMAINS and dropped < MOST_DROPPED do
    write_ready()
    local domains = redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, math.min(64, limit - #taken))
    if #domains == 0 then
      break
    end
    load_domains(group, domains, spider, lease_egress or "")
    for _, domain in ipairs(domains) do
      if #taken >= limit then
        break
      end
      inspected = inspected + 1
      local policy = policy_of(domain)
      if (policy.by_ip and lease_egress == nil) or (not policy.by_ip and lease_egress) then
        leave_band(group, band, lease_egress, domain) -- its policy has changed; place_domain knows where it belongs
      elseif not policy.off then
        lease_from_domain(group, spider, band, domain, lease_egress or "")
      end
      place_domain(group, domain, band)
    end
  end
  if #taken < limit then
    write_ready()
    local first = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")
    if first[2] and first[2] ~= "inf" then
      next_due = math.min(next_due, tonumber(first[2]))
    end
  end
end

-- The time of an egress is written once an hour at most, which spares a write in each call. Must stay well below the
-- week after which `sweep` forgets an egress. A negative time: `enroll_egress` has not given it its ready sets yet.
local enrolled = tonumber(redis.call("ZSCORE", BASE .. "egresses", egress) or 0)
if math.abs(enrolled) < now - 3600000 then
  redis.call("ZADD", BASE .. "egresses", enrolled > 0 and now or -now, egress)
end
-- All spiders of a band come before the next band: priority counts for more than the order of the spiders.
for band = 1, BANDS do
  for i = 11, #ARGV do
    local group = pool .. "|" .. ARGV[i]
    if ARGV[i] ~= ASSETS or redis.call("ZSCORE", BASE .. "groups", group) then -- few crawls have assets
      lease_from_band(group, ARGV[i], band, nil)
      lease_from_band(group, ARGV[i], band, egress)
    end
  end
end

-- --- the end of the call -------------------------------------------------------------------------------------------

local first = tonumber(number) * CALL
if #taken > 0 then
  local rows = {}
  for index, lease in ipairs(taken) do
    local id = lease_id(first, index - 1)
    rows[2 * index - 1] = id
    rows[2 * index] = cmsgpack.pack(unpack(lease))
    show_lease(now, id, lease)
  end
  call_on_key("HSET", leases_key, rows)
end
redis.call("HSET", leases_key, "last", string.format("%s %s %d %.3f", number, lease_id(first, 0), #taken, now))

local wait_ms = ""
if #taken < limit then
  if inspected >= MOST_DOMAINS or dropped >= MOST_DROPPED then
    next_due = now
  end
  local later = redis.call("ZRANGE", BASE .. "later", 0, 0, "WITHSCORES")
  if later[2] then
    next_due = math.min(next_due, tonumber(later[2]))
  end
  if next_due < INF then
    wait_ms = string.format("%.3f", math.max(0, next_due - now))
  end
  if ARGV[9] == "1" then
    local key = BASE .. "wait:" .. pool
    redis.call("ZADD", key, next_due == INF and "inf" or next_due, worker)
    -- The hour may be changed: an idle worker asks again long before.
    redis.call("PEXPIRE", key, 3600000)
  end
end
local starved_tokens = {}
for token in pairs(starved) do
  starved_tokens[#starved_tokens + 1] = token
end
write_all()
return { "ok", wait_ms, leases, crawl_rows, terms_rows, starved_tokens, idle, enrolled <= 0 and 1 or 0 }
