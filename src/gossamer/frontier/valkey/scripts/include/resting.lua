-- Queues that rest: only the rate or the number in flight that their own crawl asks for holds them up, and another
-- crawl's queue behind them may be due. An agenda lists a domain's queues by score; one that rests has the score RESTING
-- plus the time until which it rests, and so comes after all others.
-- now is in shard.lua; other names that are not declared below, in these files or their includes:
-- include queues
-- include turns

-- Whether a crawl with other limits waits for its turn on the domain, which has a queue.
local function has_others(group, domain, crawl)
  return head_of(group, domain).second and #crawls_with_other_limits(group, domain, crawl) > 0
end

-- Lets a queue rest until this time if a crawl with other limits waits behind it. Returns true if so. `head`: the queue,
-- from head_of; `at`: until when its crawl's own limits hold it up.
local function give_way(group, domain, head, crawl, at)
  if at <= now or not has_others(group, domain, crawl) then
    return false
  end
  change_agenda("ZADD", group, domain, "XX", string.format("%.0f", RESTING + math.ceil(at)), head.member)
  return true
end

-- Finds the hits that the next queue of the domain may have now, at most `most`, where crawls share the scope. Returns
-- the turns, the crawl's own, and what free_hits_in_turn returns. Crawls with queues behind this one get turns, too,
-- because a slower crawl may be held up only by itself, and must not hold them up then.
local function hits_in_turn(group, domain, scope, record, policy, crawl, most)
  local turns = turns_of(scope, record) or begin_turns(scope, record)
  local turn = turn_of(turns, record, policy, crawl, group, domain)
  local allowed, budgets, own_until = free_hits_in_turn(turns, scope, turn, record, policy, domain, most)
  local has_joined = false
  if allowed == 0 and not own_until then
    for _, other in ipairs(crawls_with_other_limits(group, domain, crawl)) do
      local theirs = turn_of(turns, record, policy, other, group, domain)
      has_joined = has_joined or theirs.is_new
      set_waits(turns, scope, theirs, theirs.waits)
    end
  end
  if has_joined then
    allowed, budgets, own_until = free_hits_in_turn(turns, scope, turn, record, policy, domain, most)
  end
  return turns, turn, allowed, budgets, own_until
end

-- Returns when crawls with the limits of this one had their last hit on a scope that crawls share; else INF.
local function last_turn(group, domain, scope, policy, token)
  local record, crawl = record_of(scope), crawl_of(token)
  local turns = crawl and turns_of(scope, record)
  return turns and turn_of(turns, record, policy, crawl, group, domain).last or INF
end

-- Puts queues whose rest is over back into their places: before the next queue those whose crawls had their last hit
-- before that one's, the oldest first, and the others behind all. Queues rest only where a crawl asked for limits.
local function end_rests(group, domain, scope, policy)
  local head = head_of(group, domain)
  if not head or not (head.resting or head.second) then
    return
  end
  local members = redis.call("ZRANGEBYSCORE", agenda_key(group, domain), RESTING, RESTING + math.floor(now), "LIMIT", 0, 100)
  local last_of_head, lasts = head.resting and INF or last_turn(group, domain, scope, policy, head.token), {}
  for _, member in ipairs(members) do
    lasts[member] = last_turn(group, domain, scope, policy, (read_member(member)))
  end
  table.sort(members, function(one, other)
    return lasts[one] < lasts[other] or lasts[one] == lasts[other] and one < other
  end)
  for k, member in ipairs(members) do
    local _, priority = read_member(member)
    local turn = lasts[member] < last_of_head and k / 1000 or next_turn()
    change_agenda("ZADD", group, domain, string.format("%.3f", agenda_score(priority, turn)), member)
  end
end
