-- Hits (fetches, as the rate limits count them): handed out where the windows have room, and charged. What free_hits
-- returns must be charged in the same call, before the record is asked again. windows.lua describes the stored record.
-- now is in shard.lua; other names that are not declared below, in these files or their includes:
-- include windows
-- Hits that start within this many ms of the first one are handed out with it, so that a worker need not ask for each.
-- May be changed: longer gives one worker more of a domain's hits, shorter costs more calls.
local AHEAD = 20

-- Returns the hits that may be handed out at this moment, at most `most`: { starts, debts after each, spacing }.
local function free_hits(record, policy, budgets, most)
  local at, free, debt, spacing = next_hit(record, policy, budgets)
  local starts, debts, count, gap = {}, {}, 0, 0
  if at <= now + EARLY then
    most = free < most and free or most
    while count < most and at <= now + AHEAD do
      count = count + 1
      starts[count], debts[count] = at, debt
      gap, debt = next_gap(spacing, debt)
      at = at + gap
    end
  end
  return { starts = starts, debts = debts, spacing = spacing }
end

-- Removes the hits that matter no more. Returns the length of the record then.
local function forget_hits(record)
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
  return size
end

-- Charges the first `count` of the hits that free_hits found.
local function charge(scope, budgets, hits, count)
  local record = record_of(scope)
  changed[scope] = true
  record[DEBT], record[IDLE] = hits.debts[count], 0
  if budgets.longest > record[KEEP] then
    record[KEEP] = budgets.longest
  end
  local size, slot = forget_hits(record), record[KEEP] / SLOTS
  -- The record has pairs of start time and count. A hit that starts with the last one is counted in its pair; once
  -- there are SLOTS pairs, so is one that starts in the same slot (a part of the window).
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
