-- Hits (fetches, as the rate limits count them): handed out where the windows have room, and charged. What free_hits
-- returns must be charged in the same call, before the record is asked again. windows.lua describes the stored record.
-- now is in shard.lua; other names that are not declared below, in these files or their includes:
-- include windows
-- Hits that start within this many ms of the first one are handed out with it, so that a worker need not ask for each.
-- Longer gives one worker more of a domain's hits, shorter costs more calls.
local AHEAD = 20

local starts, debts = { nil }, { nil } -- of the hits that free_hits found last: when each starts, and the debt after it

-- Finds the hits that may be handed out at this moment, at most `most`. Returns how many there are.
local function free_hits(record, policy, budgets, most)
  local at, free, debt = next_hit(record, policy, budgets)
  local count, gap = 0, nil
  if at <= now + EARLY then
    most = free < most and free or most
    while count < most and at <= now + AHEAD do
      count = count + 1
      starts[count], debts[count] = at, debt
      if count < most then
        gap, debt = next_gap(budgets.spacing, debt)
        at = at + gap
      end
    end
  end
  return count
end

-- Charges the first `count` of the hits that free_hits found.
local function charge(scope, record, budgets, count)
  local keep, size, gone = record[KEEP], #record, 0
  changed[scope] = true
  record[DEBT], record[IDLE] = debts[count], 0
  if budgets.longest > keep then
    keep = budgets.longest
    record[KEEP] = keep
  end
  while HITS + gone < size and record[HITS + gone] <= now - keep do
    gone = gone + 2 -- these matter no more
  end
  if gone > 0 then
    for i = HITS, size do
      record[i] = record[i + gone]
    end
    size = size - gone
  end
  -- The record has pairs of start time and count. A hit that starts with the last one is counted in its pair; once
  -- there are SLOTS pairs, so is one that starts in the same slot (a part of the window).
  for index = 1, count do
    local at, last = starts[index], size >= HITS and record[size - 1]
    if last and (last == at
      or (size > HITS + 2 * SLOTS and math.floor(last * SLOTS / keep) == math.floor(at * SLOTS / keep))) then
      record[size - 1], record[size] = at, record[size] + 1
    else
      record[size + 1], record[size + 2] = at, 1
      size = size + 2
    end
  end
end
