-- Budgets: how many hits (fetches) a domain allows in a rolling window, and how many requests in flight. Times in
-- milliseconds. Several budgets may hold at once; a hit must fit into each. A policy (policies.lua) is `explicit` where
-- the operator set its hits or window, and `drops` where all requests are dropped at once, without a hit of the site.
-- Fixed: a stored block is { blocked until, delay }.
-- A budget must never come out larger than what the operator or robots.txt asks for.
-- BASE and INF are in shard.lua; other names that are not declared below, in these files or their includes:
-- include policies

local blocks = {}
local BLOCK_ENDS, CRAWL_DELAY, IS_REST = 1, 2, 3 -- the fields of a block
local NO_BLOCK = { 0, 0 } -- of a domain that has none

-- Returns a domain's block: the end of the pause that a Retry-After asked for, and the delay of robots.txt; 0 where
-- there is none. Cached, so callers must not change it.
local function block_of(domain)
  if not blocks[domain] then
    local packed = redis.call("GET", BASE .. "x:" .. domain)
    blocks[domain] = packed and cmsgpack.unpack(packed) or NO_BLOCK
  end
  return blocks[domain]
end

-- Returns a budget whose number of hits is multiplied by `scale`; below one hit, its window is stretched instead.
-- `moderated`: its hits are evenly spaced.
local function scaled_budget(hits, window, scale, moderated)
  local effective = hits * scale
  if effective >= 1 then
    hits = math.floor(effective)
  else
    hits, window = 1, window / effective
  end
  return { hits = hits, window = window, spacing = moderated and window / hits or 0 }
end

-- Adds the even gap between two hits (0: hits may start together), the window of the budget that asks for it, the longest
-- window, and how many requests may be in flight unless that is set: twice the hits of a second, from 1 to 16, so that
-- slow answers do not hold up a fast domain.
local function with_spacing(budgets)
  local spacing, window, longest, rate = 0, budgets[1].window, 0, INF
  for i = 1, #budgets do
    local budget = budgets[i]
    if budget.spacing > spacing then
      spacing, window = budget.spacing, budget.window
    end
    longest = math.max(longest, budget.window)
    rate = math.min(rate, budget.hits * 1000 / budget.window)
  end
  budgets.spacing, budgets.window, budgets.longest = spacing, window, longest
  budgets.concurrency = rate <= 1 and 1 or math.min(16, math.ceil(2 * rate))
  return budgets
end

-- Returns every budget that a hit of this crawl must fit into: the operator's where one is set, the crawl's requested
-- rate, and the delay of robots.txt. Their `concurrency`: how many of its requests may be in flight on a domain at once.
local function budgets_of(policy, crawl, domain)
  local delay = (blocks[domain] or block_of(domain))[CRAWL_DELAY]
  local name = crawl and crawl.token or ""
  local budgets = (delay == 0 or policy.drops) and policy.budgets[name]
  if budgets then return budgets end
  crawl = not policy.drops and crawl or {}
  local rate, requested, set = crawl.requested_rate, crawl.concurrency, policy.concurrency
  budgets = { nil, spacing = 0, window = 0, longest = 0, concurrency = 0 } -- nil: room for a budget
  if policy.explicit or not rate then
    budgets[1] = scaled_budget(policy.hits, policy.window, policy.scale, policy.moderated)
  end
  if rate then budgets[#budgets + 1] = scaled_budget(rate.hits, rate.window, policy.scale, rate.moderated) end
  if delay > 0 and not policy.drops then
    budgets[#budgets + 1] = { hits = 1, window = delay, spacing = delay }
  else
    policy.budgets[name] = budgets
  end
  with_spacing(budgets)
  budgets.concurrency = requested and set and math.min(requested, set) or requested or set or budgets.concurrency
  return budgets
end
