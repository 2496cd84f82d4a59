-- Turns of crawls that share a scope (what shares one rate limit) and would otherwise take each other's hits. A group,
-- "<pool>|<spider>", is the workers that may lease a request. A turn belongs to the crawls of a group that ask for the
-- same limits; the agenda decides among them.
--   1. Together, the crawls stay within the budgets of the one that asks for the shortest gap between two hits, and have
--      at most as many requests in flight as the one that asks for most.
--   2. Two hits are at least the shorter of the gaps apart that their crawls ask for. Of the requests in flight, a crawl
--      counts those of crawls that ask for no more than it.
--   3. If several groups wait, the one whose last hit is the oldest goes first. It has GRACE ms to come.
-- Must hold: a crawl counts as one that shares a scope from the moment when it found none of its hits free although its
-- domain was due. A scope that one crawl uses has no turns, and costs nothing for them. Stored in the field PARKED of
-- its record, so that every release can read the record: a line for each turn behind those of the groups that wait.
-- INF and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include agendas
-- include windows
-- include hits

-- Time for which a free hit waits for the crawl whose turn it is. Longer delays the others when its workers are busy
-- or gone; if it is shorter than a worker needs to come after it was woken, the faster one takes all hits.
local GRACE = 50
-- A turn without requests in flight is forgotten when its last hit is older than two of its gaps and this.
local FORGET = 10000
-- Turns of a scope. With one more, all begin anew.
local MOST_TURNS = 64
-- Fixed, because it is stored: the end of a lease that counts in `flying` below.
local SHARED = "\162~t" -- as msgpack writes "~t"
local NOT_WAITING, WAITING = -1, 0 -- of a turn's `waits`; later: until when the crawl may come first

local turns_by_scope, changed_turns = {}, {}

-- Returns the turns of a scope, false where no crawls share it: a list of { group, token: 16 characters that stand for
-- the crawl that came last, gap: ms between two hits that it asks for, most: requests in flight that it asks for, last:
-- start of the last hit, flying: requests in flight, waits }, and in `parked` the lines of the groups that wait for the
-- end of a request.
local function turns_of(scope, record)
  local turns = turns_by_scope[scope]
  if turns == nil then
    turns = false
    local has_any = string.find(record[PARKED], "\t", 1, true)
    for line in string.gmatch(has_any and record[PARKED] or "", "[^\n]+\t[^\n]+") do
      local group, token, gap, most, last, flying, waits = string.match(line,
        "^([^\t]+)\t(%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$")
      if group then
        turns = turns or { parked = string.gsub(record[PARKED], "[^\n\t]+\t[^\n]+\n", "") }
        turns[#turns + 1] = { group = group, token = token, gap = gap + 0, most = most + 0, last = last + 0,
          flying = flying + 0, waits = waits + 0 }
      end
    end
    turns_by_scope[scope] = turns
  end
  return turns
end

-- Begins the turns of a scope, and returns them.
local function begin_turns(scope, record)
  turns_by_scope[scope] = { parked = record[PARKED] }
  return turns_by_scope[scope]
end

-- Writes the turns that were changed into their records.
local function write_turns()
  for scope in pairs(changed_turns) do
    local turns = turns_by_scope[scope]
    local lines = { turns and turns.parked or records[scope][PARKED] }
    for i = 1, turns and #turns or 0 do
      local turn = turns[i]
      lines[i + 1] = string.format("%s\t%s %.3f %d %.3f %d %.3f\n", turn.group, turn.token, turn.gap, turn.most,
        turn.last, turn.flying, turn.waits)
    end
    records[scope][PARKED], changed[scope] = table.concat(lines), true
  end
end

-- Notes that the turns of a scope were changed.
local function change_turns(scope)
  if not next(changed_turns) then
    local before_records = write_turns
    table.insert(writers, 1, before_records)
  end
  changed_turns[scope] = true
end

-- Returns the turn of a crawl. Where there is none, it is one that is not in the list: its last hit may have been any.
local function turn_of(turns, record, policy, crawl, group, domain)
  local rate = crawl.requested_rate or not policy.explicit and policy
  local budget = rate and scaled_budget(rate.hits, rate.window, policy.scale)
  local gap = budget and math.floor(1000 * budget.window / budget.hits + 0.5) / 1000 or 0 -- as it is stored
  local most = math.min(budgets_of(policy, crawl, domain).concurrency, 10000) -- it may be INF
  for i = 1, #turns do
    local turn = turns[i]
    if turn.group == group and turn.gap == gap and turn.most == most then
      turn.token = crawl.token
      return turn
    end
  end
  return { group = group, token = crawl.token, gap = gap, most = most, last = last_hit(record) or 0, flying = 0,
    waits = NOT_WAITING, is_new = true }
end

-- Notes how long a crawl waits, in the list of turns. `turn`: from turn_of.
local function set_waits(turns, scope, turn, waits)
  if turn.is_new then
    for i = #turns >= MOST_TURNS and #turns or 0, 1, -1 do
      turns[i] = nil
    end
    turn.is_new, turns[#turns + 1] = nil, turn
  end
  turn.waits = waits
  change_turns(scope)
end

-- Returns what limits a crawl: the budgets that all crawls of the scope share, whether they are another crawl's; the
-- time from which on its own gap allows a hit; and how many more requests may be in flight, by its own number and by
-- that of all. Where a crawl is gone, its turn is, too.
local function limits_of_turn(turns, turn, record, policy, domain)
  local fastest, flying, most, own_at = turn, record[IN_FLIGHT], turn.most, 0
  for i = #turns, 1, -1 do
    local other = turns[i]
    if not crawls[other.token] and not crawl_of(other.token) then
      table.remove(turns, i)
    else
      if other.gap < fastest.gap then fastest = other end
      if other.most > most then most = other.most end
      if other.most > turn.most then flying = flying - other.flying end
    end
  end
  if fastest ~= turn then
    own_at = turn.last + turn.gap
    for i = 1, #turns do
      local other = turns[i]
      own_at = other ~= fastest and math.max(own_at, other.last + math.min(other.gap, turn.gap)) or own_at
    end
  end
  local budgets = budgets_of(policy, crawl_of(fastest.token), domain)
  return budgets, fastest ~= turn, own_at, turn.most - math.max(0, flying), most - record[IN_FLIGHT]
end

-- Returns until when a crawl lets those of other groups go first that have waited longer for what is free now; nil where
-- it need not.
local function gives_way_until(turns, scope, turn, record, policy, domain)
  for i = #turns, 1, -1 do
    local other = turns[i]
    local is_first = other and other.waits ~= NOT_WAITING and other.group ~= turn.group
      and (other.last < turn.last or other.last == turn.last and other.group < turn.group)
    if is_first and other.waits ~= WAITING and other.waits <= now then
      set_waits(turns, scope, other, NOT_WAITING) -- it did not come
    elseif is_first then
      local _, _, own_at, own_room, room = limits_of_turn(turns, other, record, policy, domain)
      if own_at <= now + EARLY and own_room > 0 and room > 0 then
        set_waits(turns, scope, other, other.waits == WAITING and now + GRACE or other.waits)
        return other.waits
      end
    end
  end
end

-- Finds the hits that a crawl may have now, at most `most`, like free_hits. Returns how many there are and their
-- budgets; for none, also until when it is the crawl's own limits that hold it up (nil: it is not they).
local function free_hits_in_turn(turns, scope, turn, record, policy, domain, most)
  local budgets, is_slower, own_at, own_room, room = limits_of_turn(turns, turn, record, policy, domain)
  if own_at > now + EARLY or own_room <= 0 then
    set_waits(turns, scope, turn, turn.last + turn.gap > now + EARLY and NOT_WAITING or WAITING)
    return 0, budgets, own_at > now + EARLY and own_at - EARLY or now + EARLY + AHEAD
  end
  local parts = 1 -- of the requests in flight, each group that waits gets one
  for i = 1, #turns do
    if turns[i].waits ~= NOT_WAITING and turns[i].group ~= turn.group then parts = parts + 1 end
  end
  local part = math.max(1, math.floor((record[IN_FLIGHT] + room) / parts) - turn.flying)
  room = math.min(most, room, own_room, is_slower and 1 or INF)
  local count = room > 0 and free_hits(record, policy, budgets, room) or 0
  -- Others may come at the same time when a window has room again: fewer hits than requests may be in flight are divided.
  count = count > 1 and count < room and math.max(1, math.floor(count / #turns)) or count
  count = parts > 1 and count > part and part or count
  if count == 0 or gives_way_until(turns, scope, turn, record, policy, domain) then
    set_waits(turns, scope, turn, WAITING)
    return 0, budgets
  end
  starts[1] = math.max(starts[1], own_at)
  return count, budgets
end

-- Notes that a crawl got hits, the last one at `start`, and holds so many requests more in flight. `longest`: the longest
-- window of its own budgets. Crawls that share the scope no longer are forgotten.
local function take_turn(turns, scope, turn, record, start, flying, longest)
  turn.last, turn.flying, turn.has_come = start, turn.flying + flying, true
  set_waits(turns, scope, turn, NOT_WAITING)
  record[KEEP] = math.max(record[KEEP], longest)
  for i = #turns, 1, -1 do
    local other = turns[i]
    if other ~= turn and other.waits == NOT_WAITING and other.flying <= 0 and other.last + 2 * other.gap + FORGET < now then
      table.remove(turns, i)
    end
  end
  if #turns == 1 then
    turns_by_scope[scope] = false
    record[PARKED] = turns.parked
  end
end

-- Returns from when on a crawl may lease; INF while a request in flight must end first.
local function due_in_turn(turns, scope, turn, record, policy, domain)
  local budgets, _, own_at, own_room, room = limits_of_turn(turns, turn, record, policy, domain)
  local at = math.max(next_allowed(scope, record, policy, budgets), own_at - EARLY)
  if at > now then
    return at
  end
  at = own_room > 0 and room > 0 and gives_way_until(turns, scope, turn, record, policy, domain) or INF
  if own_room <= 0 or room <= 0 or at < INF then
    set_waits(turns, scope, turn, turn.waits == NOT_WAITING and WAITING or turn.waits)
    return at
  end
  return turn.has_come and now + 1 or now -- the others may come before it gets more
end

-- Notes that requests which were leased in turns have ended: their number by "<token>|<spider>". Returns the groups that
-- may go on now, a line for each.
local function end_turns(turns, scope, record, ended, domain)
  local groups, noted, policy = turns.parked, {}, policy_of(domain)
  for name, count in pairs(ended or {}) do
    local crawl = crawl_of(string.sub(name, 1, 16))
    local group = crawl and crawl.pool .. "|" .. string.sub(name, 18)
    local turn = crawl and turn_of(turns, record, policy, crawl, group, domain) or {}
    turn.flying = math.max(0, (turn.flying or 0) - count)
  end
  for i = 1, #turns do
    local turn = turns[i]
    turn.flying = math.min(turn.flying, record[IN_FLIGHT]) -- of a crawl that is gone, or asks for other limits by now
    if turn.waits ~= NOT_WAITING and not noted[turn.group] then
      groups, noted[turn.group] = groups .. turn.group .. "\n", true
    end
  end
  turns.parked = ""
  change_turns(scope)
  return groups
end

-- Charges a hit for a request that is in flight already, or is not counted, if the hit may start until `latest`. Returns
-- its start; where there is none, nil and from when on it is worth asking again. `group`: nil where the crawl is not
-- known here, and so has no turn.
local function charge_one(scope, record, policy, crawl, group, domain, latest)
  local budgets, own_at = budgets_of(policy, crawl, domain), 0
  local turns = group and record[PARKED] ~= "" and turns_of(scope, record)
  local turn = turns and turn_of(turns, record, policy, crawl, group, domain)
  local longest, _ = budgets.longest, nil
  if turn then
    budgets, _, own_at = limits_of_turn(turns, turn, record, policy, domain)
  end
  if own_at <= latest and free_hits(record, policy, budgets, 1) == 1 then
    starts[1] = math.max(starts[1], own_at)
    local at = turn and gives_way_until(turns, scope, turn, record, policy, domain)
    if starts[1] <= latest and not at then
      charge(scope, record, budgets, 1)
      if turn then take_turn(turns, scope, turn, record, starts[1], 0, longest) end
      return starts[1]
    elseif at then
      return nil, at
    end
  end
  if turn then set_waits(turns, scope, turn, own_at > latest and NOT_WAITING or WAITING) end
  return nil, math.max(next_allowed(scope, record, policy, budgets), own_at - EARLY)
end
