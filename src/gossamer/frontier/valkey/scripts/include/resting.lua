-- Queues that rest: only their own crawl's requested rate holds them up, and another crawl's queue behind them may be
-- due. An agenda lists a domain's queues by score; one that rests has the score RESTING plus the time until which it
-- rests, and so comes after all others. May be changed: the hundred of end_rests, a bound of one call.
-- now is in shard.lua; other names that are not declared below, in these files or their includes:
-- include queues

-- Lets a queue rest if only its own crawl's requested rate holds it up, until that allows a hit, and a crawl with another
-- rate waits behind it. Returns true if so. `head`: the queue, from head_of; `record`: of the scope.
local function give_way(group, domain, head, scope, record, crawl, policy, budgets)
  local at = next_allowed(scope, record, policy, budgets)
  if at <= now or #crawls_with_other_rates(group, domain, crawl) == 0 then
    return false
  end
  change_agenda("ZADD", group, domain, "XX", string.format("%.0f", RESTING + math.ceil(at)), head.member)
  return true
end

-- Puts queues whose rest is over back into their places. Queues rest only where a crawl asked for a rate.
local function end_rests(group, domain)
  local head = head_of(group, domain)
  if not head or not (head.resting or head.second) then
    return
  end
  local key = agenda_key(group, domain)
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", key, RESTING, RESTING + math.floor(now), "LIMIT", 0, 100)) do
    local _, priority = read_member(member)
    change_agenda("ZADD", group, domain, agenda_score(priority, next_turn()), member)
  end
end
