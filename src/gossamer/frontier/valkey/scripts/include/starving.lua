-- Starving queues: queues that may not run for now, because the page limit of their crawl (max_pages), or of the crawl
-- on their domain (domain_max_pages), would be exceeded if all requests in flight became pages. They are on no agenda
-- (the list of a domain's queues to lease from); the set z:{token} names their domains. Token: 16 characters that stand
-- for a crawl.
-- Must hold: a domain is taken from z:{token} in the same call that puts its queues back, or they would wait for ever.
-- Domains that one call leaves come back with the next page or by maintenance.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include queues

-- Sets a domain's queues of this crawl aside until a page of its budget comes back. `member`: of its agenda.
local function starve(crawl, group, domain, member)
  change_agenda("ZREM", group, domain, member)
  redis.call("SADD", BASE .. "z:" .. crawl.token, domain)
  redis.call("SADD", BASE .. "starving", crawl.token)
end

-- Puts the queues of a starved domain back on the agenda. The caller has taken the domain from z:{token}. The row of a
-- share (see shares.lua) has three fields for each queue from FIRST_QUEUE on: spider, priority, number of requests.
local function end_starving(crawl, domain)
  local row = share_of(crawl.token, domain).row
  for i = FIRST_QUEUE, #row, 3 do
    local spider, priority = row[i], row[i + 1]
    if type(priority) == "number" then
      local group = crawl.pool .. "|" .. spider
      local old = head_of(group, domain)
      if not old then
        redis.call("ZADD", BASE .. "groups", now, group)
      end
      -- Where it was not on the agenda, and is the next queue now, the domain is placed again.
      if change_agenda("ZADD", group, domain, "NX", agenda_score(priority, next_turn()),
        crawl.token .. "|" .. priority) == 1 and (not old or old.resting or priority > old.priority) then
        place_domain(group, domain, old and band_of(old.priority))
      end
    end
  end
end

-- The same for some domains of a crawl: as many as pages are free, and at most a hundred.
local function end_starving_of_some(crawl, count)
  for _, domain in ipairs(count > 0 and redis.call("SPOP", BASE .. "z:" .. crawl.token, math.min(count, 100)) or {}) do
    end_starving(crawl, domain)
  end
end
