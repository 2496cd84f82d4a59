-- Which workers died with a request. An entry whose flags have SUSPECT carries, between its header and the rest, the names
-- of the workers that were taken for dead while they held it: the length (2 bytes), then each name and a line feed. Whether
-- they died is decided when the entry is handed out: `knows` in common.lua removes a worker that speaks again from
-- `deaths`, however long after.
local SUSPECT = 8
local MOST_DEATHS = 3 -- an entry's flags have room for no more
local MOST_NAMES = 10

-- The names in an entry, and where the rest of it begins.
local function names_in(entry)
  if string.byte(entry, 1) < SUSPECT then
    return "", 8
  end
  local high, low = string.byte(entry, 8, 9)
  local length = high * 256 + low
  return string.sub(entry, 10, 9 + length), 10 + length
end

local function is_dead(worker)
  return redis.call("ZSCORE", P .. "deaths", worker) and true or false
end

-- How many workers have died with a request, as far as is known now.
local function deaths_of(entry)
  local deaths = math.floor(string.byte(entry, 1) / 2) % 4
  for name in string.gmatch((names_in(entry)), "[^\n]+") do
    if is_dead(name) then
      deaths = deaths + 1
    end
  end
  return math.min(deaths, MOST_DEATHS)
end

-- An entry as a worker gets it: with the number of deaths, without the names.
local function entry_for_worker(entry)
  local flags = string.byte(entry, 1)
  if flags < SUSPECT then
    return entry
  end
  local _, rest = names_in(entry)
  return string.char(flags % 2 + 2 * deaths_of(entry)) .. string.sub(entry, 2, 7) .. string.sub(entry, rest)
end

-- The entry after this worker was taken for dead with it. A request that silences one worker after another is the cause
-- of it, even if all of them speak again later: after MOST_NAMES of them it counts as one that kills its workers.
local function add_death(entry, worker)
  local flags = string.byte(entry, 1)
  local names, rest = names_in(entry)
  if not is_dead(worker) or string.find("\n" .. names, "\n" .. worker .. "\n", 1, true) then
    return entry -- it has spoken again since, or is in it already
  end
  names = names .. worker .. "\n"
  local _, count = string.gsub(names, "\n", "")
  if count >= MOST_NAMES then
    return string.char(flags % 2 + 2 * MOST_DEATHS) .. string.sub(entry, 2, 7) .. string.sub(entry, rest)
  end
  return string.char(flags < SUSPECT and flags + SUSPECT or flags) .. string.sub(entry, 2, 7)
    .. string.char(math.floor(#names / 256), #names % 256) .. names .. string.sub(entry, rest)
end

-- The entry with another tail.
local function with_tail(entry, tail)
  local flags = string.byte(entry, 1)
  local _, rest = names_in(entry)
  return string.char(flags % 2 == 0 and flags + 1 or flags) .. string.sub(entry, 2, rest - 1) .. tail
end
