-- Rolling windows of hits (fetches). One small record for each scope (what shares one rate limit) holds the hits that
-- still matter. Times in milliseconds.
-- Fixed: the order of a record's fields, which is stored. A change here must never allow more hits in a window than
-- before; the tests of politeness measure that on real servers.
-- BASE, INF, now, forgot are in shard.lua; other names that are not declared below, in these files or their includes:
-- include writes
-- include budgets

-- A record is a flat list, for there are many. DEBT: ms by which the last hit started later than even spacing asked
-- for. IN_FLIGHT: requests that are leased. IDLE: 1 while nothing waited, so that a pause without work earns no
-- catch-up. PARKED: groups that wait until a request in flight ends. KEEP: how long hits matter, the longest window
-- asked about. From HITS on: start time, count, start time, count, ... in order.
local DEBT, IN_FLIGHT, IDLE, PARKED, KEEP, HITS = 1, 2, 3, 4, 5, 6
-- A record lives this much longer, because a change of the default policy reaches its domains one after the other. Must
-- not be shorter than that takes.
local LINGER = 2000
-- A window never holds more pairs of time and count than this. When it is full, hits of one slot share the slot's
-- latest time, which makes the crawl slower and never faster. More take memory and time in each lease.
local SLOTS = 128
local records, changed = {}, {} -- by scope

-- Returns a stored record; for none, one without hits and requests.
local function unpack_record(packed)
  return packed and { cmsgpack.unpack(packed) } or { 0, 0, 1, "", 0, nil, nil } -- nil: room for a hit
end

-- Returns when the last hit started; nil where no hit is known.
local function last_hit(record)
  return #record >= HITS and record[#record - 1] or nil
end

-- Returns the record of a scope, read where it was not yet.
local function record_of(scope)
  local record = records[scope] or unpack_record(redis.call("GET", BASE .. "w:" .. scope))
  records[scope] = record
  return record
end

-- Returns the power of two of the ms that a record lives, 0 for ever: one with requests in flight must not expire. The
-- others live for up to twice as long as they matter: those with the same power are written together. `last`: start of
-- the last hit.
local function power_of_life(last, keep, in_flight)
  return in_flight > 0 and 0 or select(2, math.frexp(math.max(1, last + keep + LINGER - now)))
end

-- Writes the records that were changed, a hundred at a time.
local function write_records()
  local rows_by_power, pack_values, record_keys = {}, cmsgpack.pack, BASE .. "w:"
  local packed, debt, flying, idle, parked, kept, start, hits -- the last record: those of a call are often equal
  for scope in pairs(changed) do
    local record = records[scope]
    local in_flight = record[IN_FLIGHT]
    local power = in_flight > 0 and 0 or power_of_life(last_hit(record) or 0, record[KEEP], in_flight)
    if record[HITS] ~= start or record[HITS + 1] ~= hits or record[DEBT] ~= debt or in_flight ~= flying
      or record[IDLE] ~= idle or record[KEEP] ~= kept or record[PARKED] ~= parked or record[HITS + 2] then
      packed, debt, flying, idle, parked, kept, start, hits = pack_values(unpack(record)), unpack(record, 1, HITS + 1)
      start = record[HITS + 2] and -1 or start -- it has more hits: no record is equal
    end
    local rows = rows_by_power[power] or { nil, nil } -- nil: room for a record
    local n = #rows
    rows[n + 1], rows[n + 2] = record_keys .. scope, packed
    rows_by_power[power] = n < 198 and rows or set_strings(power, rows)
  end
  for power, rows in pairs(rows_by_power) do
    set_strings(power, rows)
  end
end

writers[#writers + 1] = write_records

-- A hit is handed out before it starts, so that the time until a worker asks again costs none: the first one of a
-- domain up to this many ms before. The worker waits until then. Longer holds requests back from other workers; shorter
-- costs more calls.
local EARLY = 10
-- Shortest gap between two hits while missed ones are made up for, as a share of the even gap. Promised to users as "a
-- tenth shorter" (`elastic` in model/crawl.py), so it may only rise, up to 1 (nothing is made up for).
local CATCH_UP = 0.9

-- Returns the gap before the next hit, and what is left of the debt then. Example: even spacing is 1000 ms, and the
-- last hit was 150 ms late. The next gap is 900 ms and leaves a debt of 50; the one after it is 950 ms and leaves none.
local function next_gap(spacing, debt)
  local gap, shortest = spacing - debt, CATCH_UP * spacing
  gap = gap < shortest and shortest or gap
  return gap, debt - spacing + gap
end

-- Returns when the next hit may start, how many may start then by the windows alone, and the debt after it. First its time
-- by the spacing (`paced`), then the time from which on every budget's window has room. Missed hits are made up for only
-- while the windows leave room, and those of one window at most.
local function next_hit(record, policy, budgets)
  local spacing, size, debt, at = budgets.spacing, #record, 0, now
  local known = size >= HITS
  local last = known and record[size - 1] or forgot -- the last hit may have been forgotten then
  if last > 0 then
    local gap, catches_up = spacing, spacing > 0 and record[IDLE] == 0 and policy.elastic
    if catches_up and record[DEBT] ~= 0 then
      gap, debt = next_gap(spacing, record[DEBT])
    end
    local even = last + gap
    at = even > now and even or now
    debt = catches_up and known and debt + at - even or 0
    debt = debt < budgets.window and debt or budgets.window
  end
  local paced, free = at, nil
  repeat
    local began = at
    free = INF
    for i = 1, #budgets do -- counts the hits in each window that ends at `at`
      local budget = budgets[i]
      local left, window = budget.hits, budget.window
      -- The hits may have been forgotten. Where they are evenly spaced, the spacing alone is enough.
      if not known and budget.spacing == 0 and forgot + window > at then
        left, at = 0, forgot + window
      end
      for k = size - 1, HITS, -2 do
        local start = record[k]
        if start <= at - window then
          break
        end
        left = left - record[k + 1]
        if left <= 0 then
          left, at = 0, start + window
          break
        end
      end
      free = left < free and left or free
    end
  until at == began
  return at, free, at > paced and 0 or debt
end

-- Returns from when on the next hit may be handed out. `record`: that of the scope.
local function next_allowed(scope, record, policy, budgets)
  if budgets.longest > record[KEEP] and #record >= HITS then
    record[KEEP], changed[scope] = budgets.longest, true -- the longer window needs what the shorter one has kept
  end
  local at = next_hit(record, policy, budgets) - EARLY
  return at > now and at or now
end
