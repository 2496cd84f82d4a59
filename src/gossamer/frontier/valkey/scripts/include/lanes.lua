-- Lanes. A request of the lane `browser` is to be rendered, so only workers with a browser lease it; all others are of
-- the lane `plain`. Queues, counters and lists have a request of the lane `browser` under its spider's name with BROWSER
-- behind it, as if another spider had it. So the lane `plain` has nothing of its own, neither in keys nor in entries.
-- What holds for a spider (how its part ends, when it expires, a budget of its own) holds for both of its lanes.
-- Must hold: no name of a spider has a comma (name_error in model/request.py). Fixed, because it is stored: BROWSER;
-- codec.py has the same.
local BROWSER = ",browser"

-- Returns the spider of a name that requests are stored under.
local function spider_of(name)
  return string.match(name, "^[^,]*")
end
