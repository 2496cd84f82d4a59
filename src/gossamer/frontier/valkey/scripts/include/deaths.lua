-- Number of workers that have died while they held a request. An entry (packed request) carries a number of deaths in
-- its flags and, if workers were declared dead with it, their names (entries.lua).
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include entries

-- The flags of an entry have two bits for it. So MAX_DEATHS in model/request.py may be smaller than this, and not
-- larger.
local MOST_COUNTED_DEATHS = 3

-- Whether a worker was declared dead lately and has not called again since.
local function is_dead(worker)
  return redis.call("ZSCORE", BASE .. "deaths", worker) and true or false
end

-- Returns how many workers have died with a request, as far as is known now.
local function deaths_of(entry)
  local deaths = math.floor(string.byte(entry, 1) / 2) % 4
  for name in string.gmatch((names_in(entry)), "[^\n]+") do
    if is_dead(name) then
      deaths = deaths + 1
    end
  end
  return math.min(deaths, MOST_COUNTED_DEATHS)
end
