-- Ready sets: which domain of a group ("<pool>|<spider>") is next. A domain's score is the time from which on it may be
-- leased; "inf" where a request in flight must end first. Words: a band is one of five ranges of priorities; an agenda
-- lists a domain's queues, the next one first; a scope is what shares one rate limit; an egress is the address that
-- requests leave from. A queue rests while its crawl may not lease from the domain yet (its requested rate is lower).
-- A policy, from policies.lua: `off`, its domain is paused; `drops`, its requests are dropped at once; `by_ip`, each
-- egress has limits of its own, and so a ready set of its own. A block: a time until which a domain may not be hit.
-- Turns: crawls that share a scope and would take each other's hits (turns.lua).
-- Must hold: a domain with work stands where its policy and the head of its agenda say, with a time that is not too
-- late, or its requests wait for ever. A time that is too early costs one look: `lease` computes it again. So code
-- that changes an agenda, a budget or a block must call place_domain or update_domain afterwards.
-- Fixed: the key names and the scores, which are stored.
-- BASE, INF and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include writes
-- include agendas
-- include windows
-- include turns

local wake_times = {} -- by pool

-- Notes that work of a pool is due at this time. write_wakes wakes the workers that wait for something later.
local function wake(pool, at)
  if at < (wake_times[pool] or INF) then wake_times[pool] = at end
end

-- Wakes the workers of each pool that wait for something later than what was noted.
local function write_wakes()
  for pool, at in pairs(wake_times) do
    local key = BASE .. "wait:" .. pool
    local last = redis.call("ZRANGE", key, "-1", "-1", "WITHSCORES")[2] -- the time that is latest, or "inf"
    if last and (last == "inf" or last + 0 > at) then
      redis.call("DEL", key)
      redis.call("PUBLISH", ARGV[2] .. ":wake:" .. pool, string.match(BASE, "{(.-)}"))
    end
  end
end

local ready_rows = {} -- by key: time, domain, ...; `first` of the times; group and band
local last_rows -- of the band that set_ready was called for last

-- Writes what set_ready gathered. Must be called before the ready sets are read or taken from: they lack it until then.
local function write_ready()
  for key, rows in pairs(ready_rows) do
    call_on_key("ZADD", key, rows)
    if rows.first < INF then wake(group_parts(rows.group).pool, rows.first) end
    ready_rows[key], last_rows = nil, nil
  end
end

writers[#writers + 1] = write_ready
writers[#writers + 1] = write_wakes

local egresses

-- Returns all egress addresses that were used lately. Read once.
local function list_egresses()
  egresses = egresses or redis.call("ZRANGE", BASE .. "egresses", 0, -1)
  return egresses
end

-- Notes that this group waits until a request of the scope that is in flight ends. Returns INF: the time is not known.
local function park(scope, group)
  local record = record_of(scope)
  if not string.find("\n" .. record[PARKED], "\n" .. group .. "\n", 1, true) then
    record[PARKED] = record[PARKED] .. group .. "\n"
    changed[scope] = true
  end
  return INF
end

-- Returns when this group may next lease from the domain through this egress; INF while a request in flight must end
-- first. `head`: of the domain's agenda, from head_of.
-- The earliest of three times, but never before the domain's block ends:
--   1. when the head may go: after its rest, or after the next free hit at its crawl's rate; or when a request ends
--   2. when another crawl that asked for another rate may go, because the head of a slower crawl must not delay it
--   3. when the first resting queue has rested, because that one may go before the head
local function due_of(group, domain, egress, head)
  local policy, resting = common_policy or policy_of(domain), head.resting
  if policy.drops then
    return resting or now
  end
  local crawl = crawls[head.token] or crawl_of(head.token)
  local block = blocks[domain] or block_of(domain)
  local scope = policy.by_domain and domain or scope_of(policy, group_parts(group).spider, domain, egress)
  local record, block_ends = records[scope] or record_of(scope), block[BLOCK_ENDS]
  if not resting and #record < HITS and record[IN_FLIGHT] == 0 and forgot == 0 then -- every budget allows the first hit
    return now < block_ends and block_ends or now
  end
  local turns = turns_by_scope[scope]
  turns = turns == nil and record[PARKED] ~= "" and turns_of(scope, record) or turns
  local budgets = block == NO_BLOCK and policy.budgets[head.token] or budgets_of(policy, crawl, domain)
  local at = resting or turns and crawl and due_in_turn(turns, scope,
    turn_of(turns, record, policy, crawl, group, domain), record, policy, domain)
    or next_allowed(scope, record, policy, budgets)
  at = at < block_ends and block_ends or at
  -- 1. A request in flight that ends before the next hit is due delays nothing: it is counted when the hit is due.
  if at <= now and not turns and record[IN_FLIGHT] >= budgets.concurrency then
    return park(scope, group)
  end
  if at <= now or not head.second then
    return at -- no other queue may be due earlier
  end
  -- 2. Not where the head rests: then every queue rests, and the third time is the right one.
  if crawl and not resting then
    for _, other in ipairs(crawls_with_other_limits(group, domain, crawl)) do
      local their_budgets = budgets_of(policy, other, domain)
      local their_time = turns and due_in_turn(turns, scope, turn_of(turns, record, policy, other, group, domain), record,
        policy, domain) or next_allowed(scope, record, policy, their_budgets)
      if their_time <= now and not turns and record[IN_FLIGHT] >= their_budgets.concurrency then
        their_time = park(scope, group)
      end
      at = math.min(at, their_time)
    end
  end
  -- 3. Queues rest only where crawls share the domain and one asked for a rate. In the agenda, a resting queue has the
  -- score RESTING plus the time until which it rests.
  if at > now and has_requested_rates() then
    local first = redis.call("ZRANGEBYSCORE", agenda_key(group, domain), RESTING, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    if first[2] then
      at = math.min(at, tonumber(first[2]) - RESTING)
    end
  end
  return math.max(at, block_ends) -- again: the second and third time do not know the block
end

-- Takes the domain out of every ready set of the group.
local function remove_from_ready(group, domain)
  write_ready()
  for band = 1, BANDS do
    redis.call("ZREM", ready_key(group, band), domain)
    for _, egress in ipairs(list_egresses()) do
      redis.call("ZREM", ready_key(group, band, egress), domain)
    end
  end
end

-- Takes the domain out of the ready set of a band where it may stand: of this egress, or (nil) of all.
local function leave_band(group, band, egress, domain)
  write_ready()
  redis.call("ZREM", ready_key(group, band, egress), domain)
end

-- Notes the domain's time in the ready set of a band, and that work of its pool is due then. `was_due`: see place_domain.
local function set_ready(group, band, egress, domain, at, was_due)
  local rows = last_rows
  if egress or not rows or rows.band ~= band or rows.group ~= group then
    local key = ready_key(group, band, egress)
    rows = ready_rows[key] or { nil, nil, first = INF, group = group, band = band } -- nil: room for a domain
    ready_rows[key], last_rows = rows, not egress and rows
  end
  local n = #rows
  rows[n + 1], rows[n + 2] = at == INF and "inf" or at, domain
  rows.first = not was_due and at < rows.first and at or rows.first
end

-- Takes a domain without queues from where it stands, and marks the record of its scope as idle, so that this pause
-- without work does not count as time that may be caught up (see windows.lua).
local function remove_domain(group, domain, policy, old_band)
  if policy.by_ip then
    redis.call("SREM", place_key(group, PER_EGRESS), domain)
    remove_from_ready(group, domain)
  else
    if old_band then leave_band(group, old_band, nil, domain) end
    local scope = scope_of(policy, group_parts(group).spider, domain, "")
    local record = record_of(scope)
    if record[IDLE] == 0 then
      record[IDLE], changed[scope] = 1, true
    end
  end
  if policy.off then redis.call("SREM", place_key(group, OFF), domain) end
end

-- Puts the domain where the head of its agenda says: into the ready set of the head's band with the time from which on
-- it may be leased, or aside where it is switched off. `old_band`: where it may stand now (nil: nowhere). `was_due`: its
-- time there has come, so no worker waits for something later: it would have got the domain, or waits for that time.
local function place_domain(group, domain, old_band, was_due)
  local policy, known = common_policy or policy_of(domain), heads[group]
  local head = known and known[domain] or head_of(group, domain)
  if not head then
    remove_domain(group, domain, policy, old_band)
    return
  end
  if policy.off then
    remove_from_ready(group, domain)
    redis.call("SADD", place_key(group, OFF), domain)
    return
  end
  local band = head.band
  if policy.by_ip then
    redis.call("SADD", place_key(group, PER_EGRESS), domain)
    for _, egress in ipairs(list_egresses()) do
      if old_band and old_band ~= band then
        leave_band(group, old_band, egress, domain)
      end
      set_ready(group, band, egress, domain, due_of(group, domain, egress, head))
    end
    return
  end
  if old_band and old_band ~= band then
    leave_band(group, old_band, nil, domain)
  end
  set_ready(group, band, nil, domain, due_of(group, domain, "", head), was_due)
end

-- Places a domain again, after its budget or its time has changed. Nothing to do where no queue of the group is there.
local function update_domain(group, domain)
  local head = head_of(group, domain)
  if head then
    place_domain(group, domain, head.band)
  end
end

-- Notes that a group, whose domain has a queue, waits for its turn on the scope.
local function await_turn(scope, record, group, domain)
  local turns, crawl = turns_of(scope, record) or begin_turns(scope, record), crawl_of(head_of(group, domain).token)
  if crawl then
    set_waits(turns, scope, turn_of(turns, record, policy_of(domain), crawl, group, domain), WAITING)
  end
end

-- Places a domain again for the groups that wait for a turn, but for the one that has just had one.
local function place_waiting(turns, group, domain)
  for i = #turns, 1, -1 do
    local other = turns[i]
    if other and other.waits ~= NOT_WAITING and other.group ~= group then update_domain(other.group, domain) end
  end
end
