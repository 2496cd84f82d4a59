#!lua flags=allow-oom
-- Report the outcomes of leases (requests that a worker holds). Each lease is deleted and its request counted as done
-- or queued again in one step, so a repeated settlement finds no lease and changes nothing.
-- Words: token: 16 characters that stand for a crawl; scope: what shares one rate limit; hit: a fetch as the rate limit
-- counts it; entry: a packed request; tail: its URL and what follows; terms: the options that one submission carries.
-- Must hold: one settlement ends one lease and adds exactly one to what is done, or puts the request back. A run is
-- finished when as much is done as was added.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 retention ms
--       5 ids of the leases (msgpack): first those that were fetched, then all others
--       6 links that were dropped (msgpack): by position of the lease in 5, { reason, count, ... }
--       then for each of the others: outcome (failed, dropped, retry, postponed, returned, forwarded, switched), reason,
--       delay ms, new tail or "". Where the outcome is failed, dropped or switched, the delay is a code: -1: the request
--       was not sent, 1: it is kept for retry_failed.lua, -2: both, 0: neither
-- Returns { "stale" } where the worker is not registered, or
--         { tokens idle on this shard, tokens whose page budget is used up }, each of them a list, or "" for none
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
-- transition: leased -> queued on switch
-- transition: leased -> dropped on stop
-- transition: leased -> dropped on expire
-- transition: queued -> dropped on exhaust
-- transition: later -> dropped on exhaust
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- include leases
-- include release
-- include queue_later
-- include drop_waiting
-- include check_finished
-- include failures
-- seldom: count_app, count_backlog, count_queued, end_reason, group_parts, has_requested_rates, last_hit, load_shares,
--         ready_key, set_ready, spider_of, unpack_record, wake
-- seldom: count_on_domain, drop_waiting, end_run, release, settle_other, spiders_of, stays_idle
-- seldom: due_in_turn, end_turns, turn_of
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

local settled_crawls = {}

-- Counts requests of a crawl that were fetched.
local function count_fetched(crawl, spider, count)
  settled_crawls[crawl.token] = true
  count_crawl(crawl.token, "h:" .. spider, -count)
  count_done(crawl, "f:" .. spider, count)
  if crawl.max_pages and spider ~= ASSETS then
    crawl.fetched = crawl.fetched + count
    count_crawl(crawl.token, "Y", count)
  end
end

-- Counts a page that was fetched against the budget of its crawl on its domain: at most `most` pages.
local function count_on_domain(token, domain, most)
  local share = share_of(token, domain)
  share.row[FETCHED] = share.row[FETCHED] + 1
  share.dirty = true
  if share.row[FETCHED] >= most and redis.call("SREM", BASE .. "z:" .. token, domain) == 1 then
    end_starving(crawl_of(token), domain) -- the next lease drops them: the budget is used up
  end
end

-- Settles a lease that was not fetched and is released. `at`: where its arguments begin in ARGV. `limits`: of its terms,
-- from terms_of. The cases, in this order:
--   its crawl has another run by now, or is gone: only the hit counts
--   failed or dropped: done
--   its crawl or its spider's part has ended meanwhile: done, as dropped
--   retry, postponed: queued again after the delay
--   returned, forwarded: back in front of its queue
--   switched: in front of its queue in the other lane (see lanes.lua), where it counts as added from now on
-- A page of the budget that was not fetched is free again.
local function settle_other(packed, at, limits)
  local outcome, delay, tail = ARGV[at], tonumber(ARGV[at + 2]), ARGV[at + 3]
  local run, token, priority, spider, domain, scope, entry, hopped, _, start = cmsgpack.unpack(packed)
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
  if tail ~= "" then
    entry = with_tail(entry, tail)
  end
  if outcome == "failed" or outcome == "dropped" then
    local field = (outcome == "failed" and "F:" or "D:") .. spider .. ":" .. ARGV[at + 1]
    count_done(crawl, field, 1)
    if crawl.keeps_failed and (delay == 1 or delay == -2) or crawl.keeps_all and outcome == "failed" then
      keep_failed(crawl, field, { priority, spider, domain, entry })
    end
  elseif end_reason(crawl, spider) then
    count_done(crawl, "D:" .. spider .. ":" .. end_reason(crawl, spider), 1)
  elseif outcome == "retry" or outcome == "postponed" then
    if outcome == "retry" then
      entry = with_attempt(entry)
      priority = math.max(LOWEST_PRIORITY, priority - RETRY_PENALTY)
    end
    if ARGV[at + 1] ~= "" then
      count_crawl(token, "T:" .. spider .. ":" .. ARGV[at + 1], 1)
    end
    queue_later(crawl, { priority, spider, domain, entry }, now + delay)
  elseif outcome == "switched" then
    local plain = spider_of(spider)
    local name = plain == spider and plain .. BROWSER or plain
    count_crawl(token, "a:" .. spider, -1)
    count_crawl(token, "a:" .. name, 1)
    enqueue(crawl, name, domain, priority, true, entry)
  else -- returned, forwarded
    enqueue(crawl, spider, domain, priority, true, entry)
  end
  if unused then -- its domain may be due sooner
    update_domain(crawl.pool .. "|" .. spider, domain)
  end
  return_page(crawl, spider, domain, limits)
end

local ids, drops = cmsgpack.unpack(ARGV[5]), cmsgpack.unpack(ARGV[6])
local fetched = #ids - (#ARGV - 6) / 4
local found = redis.call("HMGET", leases_key, unpack(ids))
if redis.call("HDEL", leases_key, unpack(ids)) < #ids then -- some are settled already, or named twice
  local known = {}
  for k = 1, #ids do
    found[k] = not known[ids[k]] and found[k]
    known[ids[k]] = true
  end
end
local holds = {} -- by scope: how many leases end
local in_turns = {} -- by scope: how many of them were leased in turns, by "<token>|<spider>" (see turns.lua)
local domains_by_crawl = {} -- by token: domains on which the share of the crawl may change
local paged = {} -- pages that count against a budget on their domain: token, domain and budget of each
local limits_of_others = {} -- by position
local together = 0 -- requests of this crawl and spider that were fetched
local last_token, last_spider, last_number, crawl, limits
for k = 1, #ids do
  local packed = found[k]
  if packed then
    -- A stored lease begins with run, token, priority, spider, domain, scope, entry.
    local at, run, token, _, spider, domain, scope = cmsgpack.unpack_limit(packed, 6)
    holds[scope] = (holds[scope] or 0) + 1
    if string.sub(packed, -#SHARED) == SHARED then
      local name = token .. "|" .. spider
      in_turns[scope] = in_turns[scope] or {}
      in_turns[scope][name] = (in_turns[scope][name] or 0) + 1
    end
    if token ~= last_token or spider ~= last_spider then
      if together > 0 then
        count_fetched(crawl, last_spider, together)
      end
      last_token, last_spider, last_number, together = token, spider, nil, 0
      crawl = crawl_of(token, "h:" .. spider, "f:" .. spider)
    end
    if crawl and crawl.run == run then -- else only its hit counts
      local number, is_fetched = terms_number_in(packed, at), k <= fetched
      if number ~= last_number then
        last_number, limits = number, terms_of(token, number)
      end
      together = is_fetched and together + 1 or together
      if limits.domain_max_pages or not is_fetched then
        limits_of_others[k] = limits
        domains_by_crawl[token] = domains_by_crawl[token] or {}
        table.insert(domains_by_crawl[token], domain)
        if is_fetched and spider ~= ASSETS then
          table.insert(paged, { token, domain, limits.domain_max_pages })
        end
      end
      for i = 1, drops[k] and #drops[k] or 0, 2 do
        count_crawl(token, "L:" .. spider .. ":" .. drops[k][i], drops[k][i + 1])
      end
    end
  end
end
if together > 0 then
  count_fetched(crawl, last_spider, together)
end
for token, domains in pairs(domains_by_crawl) do
  load_shares(token, domains)
end
for _, page in ipairs(paged) do
  count_on_domain(unpack(page))
end
release_all(holds, in_turns)
for k = fetched + 1, #ids do
  if found[k] then
    settle_other(found[k], 7 + 4 * (k - fetched - 1), limits_of_others[k])
  end
end

local idle, used_up
for token in pairs(settled_crawls) do
  local crawl = crawl_of(token)
  if crawl.max_pages and crawl.state == "r" and crawl.fetched >= crawl.quota then
    if crawl.alone then -- no other shard has a share in the budget
      redis.call("HSET", crawl.key, "st", "b")
      crawl.state = "b"
      drop_waiting(crawl, nil, "budget")
    else
      used_up = used_up or {}
      used_up[#used_up + 1] = token
    end
  end
  if check_finished(token, retention, false) then
    idle = idle or {}
    idle[#idle + 1] = token
  end
end
write_all()
return { idle or "", used_up or "" }
