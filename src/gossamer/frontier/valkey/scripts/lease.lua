#!lua flags=allow-oom
-- Lease requests that are due to a worker. In one step they leave their queues, their hits (fetches, as the rate limits
-- count them) are charged for the times at which they are to start, and the leases are stored for `settle`.
-- Steps: a repeated call gets its leases again; due retries join their queues; requests leave the queues of ready
-- domains, band by band, spider by spider; the leases are stored.
-- Words, some of them defined by the includes:
--   token           16 characters that stand for a crawl
--   run             one life of a crawl; its number
--   terms           the options that one submission carries
--   pool, group     workers with requests of their own; "<pool>|<spider>", those that may lease a request
--   agenda          the queues of a domain in a group, the next one first
--   resting         a queue waits, because only its own crawl's requested rate holds it up
--   band            one of five ranges of priorities
--   share           a crawl's counts on one domain
--   quota           pages of the crawl's page budget that this shard may fetch; reserved: those leased or fetched
--   starved         no page of a budget is left for now; the queues are set aside until one comes back
--   scope, egress   what shares one rate limit; the address that requests leave from
--   now, wall       ms of the shard's clock, as are all starts; epoch ms
-- Must hold: CALL; counter fields D:, h: and R (keys.py); a stored lease's fields (see `taken`), the ids, the field
-- `last`. `settle`, `reclaim` and `request_redirect` of another release read them, and workers hold the ids.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 call number  5 limit  6 pool  7 egress  8 retention ms
--       9 wait: 1 to be woken when less than the limit was found; 2: the same, and the last leases are named
--       10 joins: 1 in the worker's first call to this shard  11... spiders, the first is served first
-- Returns { "stale" } where the worker is not registered, or
--         { "ok", ms until the next is due or "", { leases }, { crawls and terms }, { starved tokens } or "" for none,
--           { idle tokens } or "", 1 when this egress is new here and has to be enrolled, 1 when domains wait only until
--           requests in flight end, { places of leases after which nothing of their domain is left }, the field `last`
--           of the call that got the leases: number of the call, 0, number of leases, time }
--   leases: place of the lease in that call, lease as it is stored, ...
--   crawls and terms: token, generation, crawl, ... and, with a number that is no text, token, number, blob, ...
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
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- include release
-- include hits
-- include load_records
-- include terms
-- include lease_reply
-- include sources
-- include later
-- include leave_out
-- include resting
-- include starving
-- include check_finished
-- seldom: agenda_key, agenda_score, block_of, change_agenda, count_app_domain, has_requested_rates, has_spider, last_hit,
--         leave_band, list_egresses, next_gap, policy_of, power_of_life, queue_key, record_of, remove_domain, remove_queue,
--         scope_of, share_of, spider_of, terms_number_of
-- seldom: check_finished, count_done, count_later, crawls_with_other_limits, end_reason, end_rests, enqueue,
--         give_way, has_others, lease_for_worker, park, release, remove_from_ready, starve
-- seldom: due_in_turn, end_turns, hits_in_turn, place_waiting, take_turn, turn_of, turns_of
local worker, number, limit, pool, egress = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local leases_key = BASE .. "l:" .. worker
local CALL = 2 ^ 20 -- ids that a call may give; session.py computes with the same
local MOST_DOMAINS, MOST_DROPPED = 1000, 2000 -- domains that one call looks at, and requests that it drops

if not is_registered(worker)
  and (ARGV[10] ~= "1" or redis.call("ZSCORE", BASE .. "dead", worker)) then
  return { "stale" }
end
if ARGV[10] == "1" then
  redis.call("ZADD", BASE .. "workers", now, worker)
end

-- Tokens of crawls: those without a page left (a list, and a set in the same table), and those that may be finished.
local starved, idle, last_leases = nil, nil, {} -- nil: none

-- Ids must come from the number of the worker's call, not from a counter of this shard: after a failover that lost some
-- of its last steps, a counter would give an id again that the worker holds for another request. A worker's calls are
-- numbered through all its names: it may settle what it held under an earlier name under its new one. An id is the
-- number of the call times CALL, plus the place of the lease in it.
local call_number = tonumber(number)
local first_id = call_number * CALL

-- A repeated call, whose reply was lost, must get the same answer, or its leases would be held by a worker that does
-- not know them. It gets it from the leases themselves. An earlier call than the last one was delayed on its way, and
-- its answer came long since: its ids have been used.
local last_call = redis.call("HGET", leases_key, "last")
if last_call then
  local done = tonumber(string.match(last_call, "^%d+"))
  if done == call_number then
    for index = 0, string.match(last_call, "^%d+ %d+ (%d+)") - 1 do
      local packed = redis.call("HGET", leases_key, first_id + index)
      if packed then
        local run, token, _, spider, domain, scope, entry = cmsgpack.unpack(packed)
        local crawl = crawl_of(token)
        if crawl and crawl.run == run then
          local row = #leases
          leases[row + 1], leases[row + 2] = index, lease_for_worker(packed)
          show_crawl(crawl, terms_number_of(entry))
        else -- its run was given up; a fresh one may have forgotten its terms
          redis.call("HDEL", leases_key, first_id + index)
          release(scope, domain, 1, string.sub(packed, -#SHARED) == SHARED and { [token .. "|" .. spider] = 1 })
        end
      end
    end
  end
  if call_number <= done then
    write_all()
    return { "ok", "0", leases, shown, "", "", 0, 0, "", last_call } -- the next call finds what is due by now
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
    enqueue(crawl, spider, domain, priority, false, entry)
  end
end

local dropped, single = 0, { nil } -- `single`: the only entry that was taken, in a table that is used again
local byte, pack = string.byte, cmsgpack.pack
-- The number of leases so far, and their ids with what is stored: run, token, priority, spider, domain, scope, entry,
-- fingerprint of the last hop, answer to that, start, even gap (ms; negative: its domain is blacklisted, and the worker is
-- to drop the request). A change of these fields needs another FORMAT in identity.py. A hop is a redirect for which the
-- worker asked for a hit (`request_redirect`).
local taken, lease_rows = 0, { nil, nil, nil, nil } -- nil: room for one lease

-- Returns the entries from this one on, the last one first.
local function reversed(entries, first)
  local back = {}
  for k = #entries, first, -1 do
    back[#back + 1] = entries[k]
  end
  return back
end

-- Leases what is free at the head of one queue. Returns true where the domain may have more. `head`: see head_of. In this
-- order: a queue whose crawl or part has ended is discarded; a blocked domain gets nothing; without a free
-- hit, the queue may give way (see resting.lua); without a page left in the crawl's budget, it is set aside; else entries are taken.
-- Must leave share, counters, agenda and record of hits up to date: the next queue of the domain is judged by them.
local function take(group, spider, domain, lease_egress, policy, head, is_first)
  local token, priority, second = head.token, head.priority, head.second
  local crawl = crawls[token] or crawl_of(token, "h:" .. spider, "q:" .. spider, "p:" .. spider .. ":" .. priority)
  if (not crawl or crawl.state ~= "r" or crawl.parts) and leave_out(crawl, group, spider, domain, head) then
    return true
  end
  local block = blocks[domain] or block_of(domain)
  if block[BLOCK_ENDS] > now and not policy.drops then
    return false
  end
  local scope = policy.by_domain and domain or scope_of(policy, spider, domain, lease_egress)
  local record = records[scope] or record_of(scope)
  local budgets = block == NO_BLOCK and policy.budgets[token] or budgets_of(policy, crawl, domain)
  local most, room = limit - taken, budgets.concurrency - record[IN_FLIGHT]
  local turns, turn, allowed, hit_budgets, own_until = turns_by_scope[scope], nil, nil, budgets, nil
  turns = turns == nil and record[PARKED] ~= "" and turns_of(scope, record) or turns
  if not turns then
    allowed = free_hits(record, policy, budgets, most < room and most or room)
  end
  if turns or (allowed == 0 and not policy.drops and (is_first or has_others(group, domain, crawl))) then
    turns, turn, allowed, hit_budgets, own_until = hits_in_turn(group, domain, scope, record, policy, crawl, most)
  end
  if allowed == 0 then
    return give_way(group, domain, head, crawl, own_until or now)
  end
  local free, has_page_budget = allowed, crawl.max_pages and spider ~= ASSETS
  if has_page_budget then
    if crawl.reserved >= crawl.quota then
      starve(crawl, group, domain, head.member)
      starved = starved or {}
      starved[#starved + 1] = not starved[token] and token or nil
      starved[token] = true
      return true
    end
    free = math.min(free, crawl.quota - crawl.reserved)
  end
  local takes_turns = second and select(2, read_member(second)) == priority -- the next queue has the same priority
  free = takes_turns and 1 or free
  local source = sources[head.member] or source_of(crawl, spider, head)
  local command, key = crawl.lifo and "RPOP" or "LPOP", source.before .. domain .. source.behind
  single[1] = free == 1 and call(command, key) or nil
  local entries = free == 1 and single or call(command, key, math.min(free, 1000)) or {}
  -- The entries, the oldest first, are leased, or dropped where their terms forbid it. Once all pages that the crawl may
  -- fetch on the domain are reserved, and one of them may come back without a page, the rest is put back.
  local spacing, count, gone, is_starved = policy.drops and -1 or budgets.spacing, 0, 0, false
  for index = 1, #entries do
    local entry = entries[index]
    local flags, _, _, _, a, b, c = byte(entry, 1, 7)
    local terms_number = a * 65536 + b * 256 + c -- see entries.lua
    if terms_number ~= source.terms_number then
      source.terms_number, source.terms = terms_number, terms_of(token, terms_number)
    end
    local limits = source.terms
    local most_pages = limits.domain_max_pages and spider ~= ASSETS and limits.domain_max_pages
    local share = most_pages and share_of(token, domain).row
    if limits.expires > 0 and wall >= limits.expires then
      count_done(crawl, "D:" .. spider .. ":expired", 1)
      gone = gone + 1
    elseif share and share[RESERVED] >= most_pages then
      if share[FETCHED] < most_pages then
        call_on_key(crawl.lifo and "RPUSH" or "LPUSH", key, reversed(entries, index))
        is_starved = true
        break
      end
      count_done(crawl, "D:" .. spider .. ":budget", 1)
      gone = gone + 1
    else
      if share then share[RESERVED] = share[RESERVED] + 1 end
      count = count + 1
      local start = starts[count]
      if start ~= source.start or spacing ~= source.spacing then -- most requests of a call start now
        source.start, source.spacing, source.packed_end = start, spacing, pack("", 0, start, spacing)
      end
      local packed, row = source.packed .. pack(domain, scope, entry) .. source.packed_end, 2 * taken
      lease_rows[row + 1], lease_rows[row + 2] = first_id + taken, turn and packed .. SHARED or packed
      leases[row + 1], leases[row + 2] = taken, flags < SUSPECT and packed or lease_for_worker(packed)
      if source.shown ~= terms_number then
        source.shown = terms_number
        show_crawl(crawl, terms_number)
      end
      taken = taken + 1
    end
  end
  local left = count + gone
  dropped = dropped + gone
  if gone > 0 and check_finished(token, tonumber(ARGV[8]), false) then
    idle = idle or {}
    idle[#idle + 1] = token
  end
  if is_starved then starve(crawl, group, domain, head.member) end
  -- The entries have left the queue: its share and the agenda note it now, its counters at the end of the call. A queue
  -- that is not there, because the server lost it, leaves them, too.
  source.left, source.leased = source.left + left, source.leased + count
  if change_share(token, domain, spider, priority, entries[1] and -left or -INF) == 0 then
    change_agenda("ZREM", group, domain, head.member)
    last_leases[#last_leases + 1] = ARGV[9] == "2" and not second and count > 0 and taken - 1 or nil
  elseif takes_turns and not is_starved then -- it goes behind the other queues of its priority
    local turn_behind = redis.call("HINCRBY", BASE .. "n", "turn", 1)
    change_agenda("ZADD", group, domain, "XX", agenda_score(priority, turn_behind), head.member)
  end
  if count > 0 then
    charge(scope, record, hit_budgets, count)
    record[IN_FLIGHT] = record[IN_FLIGHT] + count
    if turn then
      take_turn(turns, scope, turn, record, starts[count], count, budgets.longest)
      place_waiting(turns, group, domain)
    end
    if has_page_budget then
      crawl.reserved = crawl.reserved + count
      count_crawl(token, "R", count)
    end
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
  local scopes, domains_by_crawl = {}, {}
  local _ = #domains > 4 and has_requested_rates() -- without any, the agendas are read faster
  for index = 1, #domains do
    local domain = domains[index]
    local policy = common_policy or policies[domain]
    scopes[index] = policy.by_domain and domain or scope_of(policy, spider, domain, lease_egress)
    local head = head_of(group, domain)
    if head then
      local mine = domains_by_crawl[head.token]
      if mine then
        mine[#mine + 1] = domain
      else
        domains_by_crawl[head.token] = { domain }
      end
    end
  end
  load_records(domains, scopes)
  for token, mine in pairs(domains_by_crawl) do
    load_shares(token, mine)
  end
end

local next_due, inspected = INF, 0
local is_timed, is_capped = false, false -- domains wait for their time, or until a request of theirs in flight ends

-- Leases from the domains of one band, either those of this egress or (nil) those without one.
local function lease_from_band(group, spider, band, lease_egress)
  local key = ready_key(group, band, lease_egress)
  sources = sources_by_group[group] or {}
  sources_by_group[group] = sources
  while taken < limit and inspected < MOST_DOMAINS and dropped < MOST_DROPPED do
    write_ready()
    local domains = redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, math.min(64, limit - taken))
    if #domains == 0 then break end
    load_domains(group, domains, spider, lease_egress or "")
    local mine = heads[group]
    for i = 1, #domains do
      local domain = domains[i]
      if taken >= limit then break end
      inspected = inspected + 1
      local policy, head = common_policy or policies[domain], mine[domain] or head_of(group, domain)
      local stays = not policy.by_ip == (lease_egress == nil)
      if not stays then
        leave_band(group, band, lease_egress, domain) -- its policy has changed; place_domain knows where it belongs
        head = false
      elseif head and (head.second or head.resting) and has_requested_rates() then
        end_rests(group, domain, scope_of(policy, spider, domain, lease_egress or ""), policy)
        head = head_of(group, domain)
      end
      local more, taken_here = not policy.off, false
      while more and head and not head.resting and head.band == band and taken < limit and dropped < MOST_DROPPED do
        more = take(group, spider, domain, lease_egress or "", policy, head, not taken_here)
        taken_here = true
        head = mine[domain] or head_of(group, domain)
      end
      place_domain(group, domain, band, stays)
    end
  end
  if taken < limit then
    write_ready()
    local first = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")
    if first[2] == "inf" then
      is_capped = true
    elseif first[2] then
      is_timed = true
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
-- Few crawls have assets: a call in whose pool there were none lately does not look for them in each band.
for i = #ARGV, 11, -1 do
  if ARGV[i] == ASSETS and not redis.call("ZSCORE", BASE .. "groups", pool .. "|" .. ASSETS) then
    table.remove(ARGV, i)
  end
end
-- Mostly all domains stand in the last band, none has a budget for each egress, and there are no policies. The other
-- ready sets and the policies are looked at only where any of them exists.
local used_places = {} -- by group, where it has other ready sets: { urgent, per egress }
local first_band = BANDS
for i = 11, #ARGV do
  local group = pool .. "|" .. ARGV[i]
  local per_egress, bands = place_key(group, PER_EGRESS), ready_key(group, "")
  local count = call("EXISTS", BASE .. "policy", per_egress, bands .. "1", bands .. "2", bands .. "3", bands .. "4")
  policy_count = count == 0 and 0 or policy_count
  if count > 1 or (count == 1 and count_policies() == 0) then
    used_places[group] = { call("EXISTS", bands .. "1", bands .. "2", bands .. "3", bands .. "4") > 0,
      call("EXISTS", per_egress) > 0 }
    first_band = 1
  end
end
-- All spiders of a band come before the next band: priority counts for more than the order of the spiders.
for band = first_band, BANDS do
  for i = 11, #ARGV do
    local group = pool .. "|" .. ARGV[i]
    local used = used_places[group]
    if band == BANDS or used and used[1] then
      lease_from_band(group, ARGV[i], band, nil)
    end
    if used and used[2] then
      lease_from_band(group, ARGV[i], band, egress)
    end
  end
end

-- --- the end of the call -------------------------------------------------------------------------------------------

-- Number of the call, a field that nothing reads, number of leases, time. Other releases expect four fields.
local this_call = string.format("%s 0 %d %.3f", number, taken, now)
lease_rows[2 * taken + 1], lease_rows[2 * taken + 2] = "last", this_call
call_on_key("HSET", leases_key, lease_rows)

local wait_ms = ""
if taken < limit then
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
  if ARGV[9] ~= "0" then
    local key = BASE .. "wait:" .. pool
    redis.call("ZADD", key, next_due == INF and "inf" or next_due, worker)
    -- An idle worker asks again long before the hour is over.
    redis.call("PEXPIRE", key, 3600000)
  end
end
count_sources()
write_all()
return { "ok", wait_ms, leases, shown, starved or "", idle or "", enrolled <= 0 and 1 or 0,
  is_capped and not is_timed and 1 or 0, last_leases, this_call }
