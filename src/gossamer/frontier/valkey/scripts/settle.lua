#!lua flags=allow-oom
-- Report the outcomes of leases (requests that a worker holds). Each lease is deleted and its request counted as done
-- or queued again in one step, so a repeated settlement finds no lease, answers 0 and changes nothing.
-- Words: token: 16 characters that stand for a crawl; scope: what shares one rate limit; hit: a fetch as the rate limit
-- counts it; entry: a packed request; tail: its URL and what follows; terms: the options that one submission carries.
-- May be changed: RETRY_PENALTY; arguments and reply, together with session.py and leaseholder.py: each release loads
-- its own scripts.
-- Must hold: one settlement ends one lease and adds exactly one to what is done, or puts the request back. A run is
-- finished when as much is done as was added.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 retention ms
--       then for each lease: id, outcome (fetched, failed, dropped, retry, postponed, returned, forwarded), reason,
--       delay ms, new tail or "", number of drop counts, and for each of those: reason, count. Where the outcome is
--       failed or dropped, the delay is a code: -1: the request was not sent, 1: it is kept for retry_failed.lua,
--       -2: both, 0: neither
-- Returns { "stale" } where the worker is not registered, or
--         { answers (1 settled, 0 already), tokens idle on this shard, tokens whose page budget is used up }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, deaths, egresses, ending, event, events, expiries, failed:{token}, groups, h:{token}, idle,
--         idle-until, l:{worker}, later, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, purge,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         running:{spider}|{appid}, running:|{appid}, t:{token}, w:{scope}, wait:{pool}, workers, x:{domain},
--         z:{token}
-- transition: leased -> fetched on fetch
-- transition: leased -> failed on fail
-- transition: leased -> dropped on drop
-- transition: leased -> later on retry
-- transition: leased -> later on postpone
-- transition: leased -> queued on return
-- transition: leased -> queued on forward
-- transition: leased -> dropped on stop
-- transition: leased -> dropped on expire
-- transition: queued -> dropped on exhaust
-- transition: later -> dropped on exhaust
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- include leases
-- include release
-- include load_records
-- include queue_later
-- include drop_waiting
-- include check_finished
-- include failures
-- seldom: budgets_of, drop_waiting, end_run, end_starving, enqueue, keep_failed, policy_of, queue_later, refund,
--         return_page, spiders_of, stays_idle, update_domain, with_attempt, with_tail
local RETRY_PENALTY = 10 -- a retry has so much less priority
-- May be any number from -72000 to -60000 (-MAX_PRIORITY): below that, the scores of queues on an agenda would reach
-- those of resting queues (RESTING in agendas.lua).
local LOWEST_PRIORITY = -65000
local worker, retention = ARGV[3], tonumber(ARGV[4])
local leases_key = BASE .. "l:" .. worker
if not is_registered(worker) then
  return { "stale" }
end

-- Gives a hit back that was to start at `start` and never did. A hit that does not matter any more is left alone: the
-- hits that came after it belong to other requests. The record of a scope lists its hits, and its debt: by how many ms
-- the last hit started later than even spacing asked for, which later hits may make up for. Where there are many hits,
-- those of one slot (a part of the window) are stored as one, with the latest of their times (see windows.lua).
local function refund(scope, policy, budgets, start)
  local record = record_of(scope)
  local at, size, slot = HITS, #record, record[KEEP] / SLOTS
  while at < size and record[at] < start do -- hits of one slot share its latest time
    at = at + 2
  end
  if at >= size or start <= now - record[KEEP]
    or (record[at] ~= start and math.floor(record[at] / slot) ~= math.floor(start / slot)) then
    return
  end
  changed[scope] = true
  -- Without this hit, even spacing would have asked for the last one a gap earlier: the debt is computed from that.
  local even = last_hit(record) - record[DEBT] - budgets.spacing
  record[at + 1] = record[at + 1] - 1
  if record[at + 1] == 0 then
    for i = at, size do
      record[i] = record[i + 2]
    end
  end
  local last = last_hit(record)
  record[DEBT] = policy.elastic and last and math.max(0, last - even) or 0
end

-- Counts a page that was fetched against the budgets of its crawl. `limits`: of its terms, from terms_of.
local function count_page(crawl, spider, domain, limits)
  if crawl.max_pages and spider ~= ASSETS then
    crawl.fetched = crawl.fetched + 1
    count_crawl(crawl.token, "Y", 1)
  end
  if limits.domain_max_pages and spider ~= ASSETS then
    local share = share_of(crawl.token, domain)
    share.row[FETCHED] = share.row[FETCHED] + 1
    share.dirty = true
    local is_used_up = share.row[FETCHED] >= limits.domain_max_pages
    if is_used_up and redis.call("SREM", BASE .. "z:" .. crawl.token, domain) == 1 then
      end_starving(crawl, domain) -- the next lease drops them: the budget is used up
    end
  end
end

local settled_crawls = {}

-- Returns the number in an argument. Most are "0", which is quicker to compare than to convert.
local function number_of(argument)
  return argument == "0" and 0 or tonumber(argument)
end

-- Settles one lease, whose arguments begin at ARGV[at]. `limits`: of its terms. The cases, in this order:
--   its crawl has another run by now, or is gone: only the hit counts
--   fetched, failed or dropped: done
--   its crawl or its spider's part has ended meanwhile: done, as dropped
--   retry, postponed: queued again after the delay
--   returned, forwarded: back in front of its queue
-- A page of the budget that was not fetched is free again.
local function settle(lease, at, limits)
  local outcome, reason, delay, tail = ARGV[at + 1], ARGV[at + 2], number_of(ARGV[at + 3]), ARGV[at + 4]
  local run, token, priority, spider, domain, scope, entry, hopped, _, start = unpack(lease)
  release(scope, domain)
  local crawl = crawl_of(token)
  -- Whether nothing used its hit. `hopped`: fingerprint of the target if the page redirected, else "".
  local unused = (outcome == "returned" or delay < 0) and hopped == ""
  if unused then
    local policy = policy_of(domain)
    refund(scope, policy, budgets_of(policy, crawl or nil, domain), start)
  end
  if not crawl or crawl.run ~= run then
    return
  end
  settled_crawls[token] = true
  count_crawl(token, "h:" .. spider, -1)
  local drops = at + 6
  for k = 0, number_of(ARGV[at + 5]) - 1 do
    count_crawl(token, "L:" .. spider .. ":" .. ARGV[drops + 2 * k], tonumber(ARGV[drops + 2 * k + 1]))
  end
  local ended = end_reason(crawl, spider)
  if tail ~= "" then
    entry = with_tail(entry, tail)
  end
  if outcome == "fetched" then
    count_done(crawl, "f:" .. spider, 1)
    count_page(crawl, spider, domain, limits)
    return
  end
  if outcome == "failed" or outcome == "dropped" then
    local field = (outcome == "failed" and "F:" or "D:") .. spider .. ":" .. reason
    count_done(crawl, field, 1)
    if delay == 1 or delay == -2 then
      keep_failed(crawl, field, { priority, spider, domain, entry })
    end
    if unused then -- its domain may be due sooner
      update_domain(crawl.pool .. "|" .. spider, domain)
    end
  elseif ended then
    count_done(crawl, "D:" .. spider .. ":" .. ended, 1)
  elseif outcome == "retry" or outcome == "postponed" then
    if outcome == "retry" then
      entry = with_attempt(entry)
      priority = math.max(LOWEST_PRIORITY, priority - RETRY_PENALTY)
    end
    queue_later(crawl, { priority, spider, domain, entry }, now + delay)
  else -- returned, forwarded
    enqueue(crawl, spider, domain, priority, { entry }, true)
    if unused then -- its domain may be due sooner
      update_domain(crawl.pool .. "|" .. spider, domain)
    end
  end
  return_page(crawl, spider, domain, limits)
end

local ids, places = {}, {} -- of each settlement: the lease's id, and where its arguments begin
local i = 5
while i <= #ARGV do
  ids[#ids + 1] = ARGV[i]
  places[#places + 1] = i
  i = i + 6 + 2 * number_of(ARGV[i + 5])
end
local found = redis.call("HMGET", leases_key, unpack(ids))
redis.call("HDEL", leases_key, unpack(ids))
local answers, leases, limits, scopes, domains_by_crawl, seen_ids = {}, {}, {}, {}, {}, {}
for k = 1, #ids do
  answers[k] = 0
  if found[k] and not seen_ids[ids[k]] then
    seen_ids[ids[k]] = true
    local lease = { cmsgpack.unpack(found[k]) }
    local token, domain, entry = lease[2], lease[5], lease[7]
    leases[k], answers[k] = lease, 1
    limits[k] = terms_of(token, terms_number_of(entry))
    scopes[#scopes + 1] = lease[6]
    if limits[k].domain_max_pages or ARGV[places[k] + 1] ~= "fetched" then -- what changes the share on its domain
      domains_by_crawl[token] = domains_by_crawl[token] or {}
      table.insert(domains_by_crawl[token], domain)
    end
  end
end
load_records({}, scopes)
for token, domains in pairs(domains_by_crawl) do
  load_shares(token, domains)
end
for k = 1, #ids do
  if leases[k] then
    settle(leases[k], places[k], limits[k])
  end
end

local idle, used_up = {}, {}
for token in pairs(settled_crawls) do
  local crawl = crawl_of(token)
  if crawl.max_pages and crawl.state == "r" and crawl.fetched >= crawl.quota then
    if crawl.alone then -- no other shard has a share in the budget
      redis.call("HSET", crawl.key, "st", "b")
      crawl.state = "b"
      drop_waiting(crawl, nil, "budget")
    else
      used_up[#used_up + 1] = token
    end
  end
  if check_finished(token, retention, false) then
    idle[#idle + 1] = token
  end
end
write_all()
return { answers, idle, used_up }
