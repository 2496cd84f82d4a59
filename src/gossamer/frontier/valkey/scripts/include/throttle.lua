-- Politeness: one small record per scope holds the rolling window of hits. All times in milliseconds.
local BUILT_IN_HITS, BUILT_IN_WINDOW = 1, 1000
local SLOTS = 128 -- a window never holds more pairs: beyond, hits of one slot share its latest time (slower, never faster)

local policies, default_policy = {}, nil

-- The operator's word for a domain, over the operator's default, over the built-in.
local function policy_from(own)
  local function pick(name, built_in)
    if own[name] ~= nil then return own[name] end
    if default_policy[name] ~= nil then return default_policy[name] end
    return built_in
  end
  local scope, scale = pick("scope", "domain"), pick("scale", 1)
  local blacklisted = pick("blacklisted", false)
  if blacklisted and pick("when_blacklisted", "held") == "dropped" then
    -- Handed out at once, to be recorded as dropped: under a scope of its own, no hit of the domain is charged.
    return { drops = true, explicit = true, hits = 1000, window = 1000, scale = 1, cap = INF, budgets = {}, caps = {} }
  end
  return {
    explicit = pick("hits") ~= nil or pick("window") ~= nil,
    hits = pick("hits", BUILT_IN_HITS), window = pick("window", BUILT_IN_WINDOW),
    moderated = pick("moderated", true), elastic = pick("elastic", true), scale = scale,
    by_type = scope == "type" or scope == "type+ip", by_ip = scope == "ip" or scope == "type+ip",
    cap = pick("concurrency"), off = blacklisted or scale <= 0,
    budgets = {}, caps = {}, -- by crawl, where robots.txt asks for no delay
  }
end

local plain_policy -- of every domain that the operator said nothing about
local are_plain -- all of them are

local function load_policies(domains)
  if not default_policy then
    local row = redis.call("HMGET", P .. "policy", "*", "version")
    default_policy = row[1] and cmsgpack.unpack(row[1]) or {}
    plain_policy = policy_from({})
    are_plain = redis.call("HLEN", P .. "policy") == (row[1] and 1 or 0) + (row[2] and 1 or 0)
  end
  if are_plain then
    for _, domain in ipairs(domains) do
      policies[domain] = plain_policy
    end
    return
  end
  local fields = {}
  for index, domain in ipairs(domains) do
    fields[index] = "d:" .. domain
  end
  local rows = redis.call("HMGET", P .. "policy", unpack(fields))
  for index, domain in ipairs(domains) do
    policies[domain] = rows[index] and policy_from(cmsgpack.unpack(rows[index])) or plain_policy
  end
end

local function policy_of(domain)
  local policy = policies[domain]
  if not policy then
    load_policies({ domain })
    policy = policies[domain]
  end
  return policy
end

local function scope_of(policy, spider, domain, egress)
  if policy.drops then
    return domain .. "|,dropped" -- no name has a comma
  end
  if policy.by_ip then
    return domain .. "|" .. (policy.by_type and spider or "") .. "|" .. egress
  end
  return policy.by_type and (domain .. "|" .. spider) or domain
end

local blocks = {}

local NO_BLOCK = { 0, 0 }

-- { blocked until, crawl delay }, from Retry-After and robots.txt. Not to be changed.
local function block_of(domain)
  local block = blocks[domain]
  if not block then
    local raw = redis.call("GET", P .. "x:" .. domain)
    block = raw and cmsgpack.unpack(raw) or NO_BLOCK
    blocks[domain] = block
  end
  return block
end

local function budget(hits, window, scale, moderated)
  local effective = hits * scale
  if effective >= 1 then
    hits = math.floor(effective)
  else
    hits, window = 1, window / effective
  end
  return { hits = hits, window = window, spacing = moderated and window / hits or 0 }
end

-- Adds the even gap between two hits (0: hits may start together), and the window of the budget that asks for it.
local function with_pace(budgets)
  budgets.spacing, budgets.window = 0, budgets[1].window
  for _, b in ipairs(budgets) do
    if b.spacing > budgets.spacing then
      budgets.spacing, budgets.window = b.spacing, b.window
    end
  end
  return budgets
end

-- Every budget that a hit for this crawl must fit into: the operator's where one is set, the crawl's own wish, robots'.
local function budgets_of(policy, crawl, domain)
  if policy.drops then
    return with_pace({ budget(policy.hits, policy.window, 1, false) })
  end
  local delay = block_of(domain)[2]
  local name = crawl and crawl.token or ""
  local budgets = delay == 0 and policy.budgets[name]
  if budgets then
    return budgets
  end
  budgets = {}
  local wish = crawl and crawl.wish
  if policy.explicit or not wish then
    budgets[1] = budget(policy.hits, policy.window, policy.scale, policy.moderated)
  end
  if wish then
    budgets[#budgets + 1] = budget(wish[1], wish[2], policy.scale, wish[3])
  end
  if delay > 0 then
    budgets[#budgets + 1] = { hits = 1, window = delay, spacing = delay }
  else
    policy.budgets[name] = budgets
  end
  return with_pace(budgets)
end

local function cap_of(policy, crawl, budgets)
  if policy.drops then
    return INF
  end
  local wish = crawl and crawl.cap
  if policy.cap then
    return wish and math.min(wish, policy.cap) or policy.cap
  end
  if wish then
    return wish
  end
  local rate = INF
  for _, b in ipairs(budgets) do
    rate = math.min(rate, b.hits * 1000 / b.window)
  end
  return rate <= 1 and 1 or math.min(16, math.ceil(2 * rate))
end

-- A scope's record is flat, for there are many. DEBT: ms by which the last hit started later than even spacing asked for;
-- IDLE: 1 while nothing waited, so that a pause without work earns no catch-up; PARKED: homes that wait for a request in
-- flight to end; KEEP: how long hits matter, the longest window asked about; from HITS on: start time, count, ... in order.
local DEBT, INFLIGHT, IDLE, PARKED, KEEP, HITS = 1, 2, 3, 4, 5, 6
local LINGER = 2000 -- ms that a record lives longer: a new default policy reaches its domains one after the other
local records, changed = {}, {} -- by scope

local function record_from(raw)
  return raw and { cmsgpack.unpack(raw) } or { 0, 0, 1, "", 0 }
end

-- When the last hit started; nil: no hit is known.
local function last_of(record)
  return #record >= HITS and record[#record - 1] or nil
end

local function record_of(scope)
  local record = records[scope]
  if not record then
    record = record_from(redis.call("GET", P .. "w:" .. scope))
    records[scope] = record
  end
  return record
end

-- Reads the records of many scopes at once.
local function load_records(scopes)
  local names, keys = {}, {}
  for _, scope in ipairs(scopes) do
    if not records[scope] then
      names[#names + 1], keys[#keys + 1] = scope, P .. "w:" .. scope
    end
  end
  if #keys > 0 then
    for index, raw in ipairs(redis.call("MGET", unpack(keys))) do
      records[names[index]] = record_from(raw)
    end
  end
end

-- Reads what leasing from these domains asks for, at once.
local function load_domains(domains, spider, egress)
  load_policies(domains)
  local keys, scopes = {}, {}
  for index, domain in ipairs(domains) do
    keys[index] = P .. "x:" .. domain
    scopes[index] = scope_of(policies[domain], spider, domain, egress)
  end
  for index, raw in ipairs(redis.call("MGET", unpack(keys))) do
    blocks[domains[index]] = raw and cmsgpack.unpack(raw) or NO_BLOCK
  end
  load_records(scopes)
end

local function write_records()
  local busy, over = {}, {} -- those without an end, and those at it: in one command each
  for scope in pairs(changed) do
    local record, key = records[scope], P .. "w:" .. scope
    local life = math.ceil((last_of(record) or 0) + record[KEEP] + LINGER - now)
    if record[INFLIGHT] > 0 then
      busy[#busy + 1] = key
      busy[#busy + 1] = cmsgpack.pack(unpack(record))
    elseif life > 0 then
      redis.call("SET", key, cmsgpack.pack(unpack(record)), "PX", life)
    else
      over[#over + 1] = key
    end
  end
  push_pairs("MSET", busy)
  push_pairs("UNLINK", over)
  records, changed = {}, {}
end

-- A hit is handed out before it starts, so that the time until a worker asks again costs none: the first of a domain up
-- to EARLY ms before, and with it the others that start within AHEAD ms. The worker waits until then.
local EARLY, AHEAD = 10, 20
local CATCH_UP = 0.9 -- the shortest gap between two hits while missed ones are made up for, as a share of the even gap

-- Hits free in a budget's rolling window that ends at `at`, and when the next one is if there is none.
local function window_of(record, b, at)
  -- What was known of its hits may have been forgotten. Where they are evenly spaced, that alone is enough.
  if #record < HITS and b.spacing == 0 and forgot + b.window > at then
    return 0, forgot + b.window
  end
  local used = 0
  for i = #record - 1, HITS, -2 do
    if record[i] <= at - b.window then
      break
    end
    used = used + record[i + 1]
    if used >= b.hits then
      return 0, record[i] + b.window
    end
  end
  return b.hits - used, at
end

-- The gap before the next hit, and what is left of the debt then.
local function next_gap(spacing, debt)
  local gap = math.max(CATCH_UP * spacing, spacing - debt)
  return gap, debt - spacing + gap
end

-- When the next hit may start, how many may by the windows alone, and the debt after it. Only while the windows leave
-- room are missed hits made up for, and one window's at most.
local function next_hit(record, policy, budgets)
  local spacing, window = budgets.spacing, budgets.window
  local catches_up = policy.elastic and record[IDLE] == 0 and spacing > 0
  local known, debt, at = last_of(record), 0, now
  local last = known or forgot -- the last hit may have been forgotten then
  if last > 0 then
    local gap
    gap, debt = next_gap(spacing, catches_up and record[DEBT] or 0)
    at = math.max(now, last + gap)
    debt = catches_up and known and math.min(window, debt + at - last - gap) or 0
  end
  local paced, free = at, nil
  repeat
    local moved = false
    free = INF
    for _, b in ipairs(budgets) do
      local left, free_at = window_of(record, b, at)
      if free_at > at then
        at, moved = free_at, true
      end
      free = math.min(free, left)
    end
  until not moved
  return at, free, at > paced and 0 or debt, spacing
end

-- From when on the next hit may be handed out.
local function next_allowed(scope, policy, budgets)
  local record = record_of(scope)
  for _, b in ipairs(budgets) do
    if b.window > record[KEEP] and #record >= HITS then
      record[KEEP], changed[scope] = b.window, true -- what the shorter one has kept, the longer one needs
    end
  end
  return math.max(now, (next_hit(record, policy, budgets)) - EARLY)
end

-- The hits that may be handed out at this moment, at most so many: { start times, debts after each, the even gap }.
local function free_hits(record, policy, budgets, most)
  local at, free, debt, spacing = next_hit(record, policy, budgets)
  local starts, debts, gap = {}, {}, 0
  if at <= now + EARLY then
    while #starts < most and #starts < free and at <= now + AHEAD do
      starts[#starts + 1], debts[#debts + 1] = at, debt
      gap, debt = next_gap(spacing, debt)
      at = at + gap
    end
  end
  return { starts = starts, debts = debts, spacing = spacing }
end

-- Charges the first `count` of the hits that `free_hits` found.
local function charge(scope, budgets, hits, count)
  local record = record_of(scope)
  changed[scope] = true
  record[DEBT], record[IDLE] = hits.debts[count], 0
  for _, b in ipairs(budgets) do
    record[KEEP] = math.max(record[KEEP], b.window)
  end
  local keep, size, gone = record[KEEP], #record, 0
  while HITS + gone < size and record[HITS + gone] <= now - keep do
    gone = gone + 2
  end
  if gone > 0 then
    for i = HITS, size do
      record[i] = record[i + gone]
    end
    size = size - gone
  end
  local slot = keep / SLOTS
  for index = 1, count do
    local at, last = hits.starts[index], size >= HITS and record[size - 1]
    if last and (last == at
      or (size > HITS + 2 * SLOTS and math.floor(last / slot) == math.floor(at / slot))) then
      record[size - 1], record[size] = at, record[size] + 1
    else
      record[size + 1], record[size + 2] = at, 1
      size = size + 2
    end
  end
end

-- Takes back a hit that was to start then and never did. One that matters no longer is not looked for: the hits that
-- came after it are others'.
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
  local even = last_of(record) - record[DEBT] - budgets.spacing -- the last hit's place in an even row, without this one
  record[at + 1] = record[at + 1] - 1
  if record[at + 1] == 0 then
    for i = at, size do
      record[i] = record[i + 2]
    end
  end
  local last = last_of(record)
  record[DEBT] = policy.elastic and last and math.max(0, last - even) or 0
end
