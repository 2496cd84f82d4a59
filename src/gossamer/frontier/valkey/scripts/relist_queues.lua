#!lua flags=allow-oom
-- Compare the queues of domains with what lists them (a share of the crawl, an agenda, a place of the domain), and
-- correct that. Only a server that lost a part of its writes leaves anything to correct. The counters of the crawl are
-- not touched: `recount_crawls` compares them with the shares afterwards. (Token: 16 characters that stand for a crawl.
-- Share: what a crawl has on a domain. Agenda: the queues of a domain in a group, "<pool>|<spider>".)
-- Must hold: a queue of a part that has ended is left alone; `purge` or a lease deletes it.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3... each a domain of a crawl (msgpack, one value after the other): token, domain,
--       then spider and priority of each queue that was found there
-- Returns { queues that no worker would have got, queues whose number of requests was wrong }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, egresses, groups, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         w:{scope}, wait:{pool}, x:{domain}, z:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include queues
-- include end_reasons
local wrong = {} -- numbers of `unlisted` and `miscounted` queues

-- Whether the domain stands where workers look for it, and not with "inf", which means that a request in flight must end
-- first, when nothing has to. `head`: of its agenda.
local function is_placed(group, domain, head)
  local policy = common_policy or policy_of(domain)
  if (policy.off or policy.by_ip)
    and redis.call("SISMEMBER", place_key(group, policy.off and OFF or PER_EGRESS), domain) == 0 then
    return false
  end
  for _, egress in ipairs(policy.off and {} or policy.by_ip and list_egresses() or { "" }) do
    local at = redis.call("ZSCORE", ready_key(group, head.band, policy.by_ip and egress), domain)
    if not at or at == "inf" and due_of(group, domain, egress, head) < INF then
      return false
    end
  end
  return true
end

-- Puts a queue on its agenda and the domain in its place, where they are missing.
local function list_queue(crawl, spider, domain, priority)
  local group, member = crawl.pool .. "|" .. spider, crawl.token .. "|" .. priority
  local is_unknown = redis.call("ZADD", BASE .. "groups", "NX", now, group) == 1
  if not redis.call("ZSCORE", agenda_key(group, domain), member) then
    change_agenda("ZADD", group, domain, agenda_score(priority, next_turn()), member)
  elseif is_placed(group, domain, head_of(group, domain)) and not is_unknown then
    return
  end
  place_domain(group, domain, nil)
  wrong.unlisted = (wrong.unlisted or 0) + 1
end

-- Returns the queues of a domain: spider, priority and counted requests of each, from its share and from those found.
local function queues_of(row, parts)
  local queues, counted = {}, {}
  for k = FIRST_QUEUE, #row, 3 do
    if type(row[k + 1]) == "number" then
      queues[#queues + 1] = { row[k], row[k + 1], row[k + 2] }
      counted[row[k] .. "|" .. row[k + 1]] = true
    end
  end
  for k = 3, #parts, 2 do
    if not counted[parts[k] .. "|" .. parts[k + 1]] then
      queues[#queues + 1] = { parts[k], parts[k + 1], 0 }
    end
  end
  return queues
end

for i = 3, #ARGV do
  local parts = { cmsgpack.unpack(ARGV[i]) }
  local token, domain = parts[1], parts[2]
  local crawl = crawl_of(token)
  local starves = redis.call("SISMEMBER", BASE .. "z:" .. token, domain) == 1
  for _, queue in ipairs(queues_of(crawl and share_of(token, domain).row or {}, parts)) do
    local spider, priority, count = unpack(queue)
    local key = queue_key(token, spider, domain, priority)
    if not crawl then
      redis.call("UNLINK", key)
    elseif not end_reason(crawl, spider) then
      local length = redis.call("LLEN", key)
      if length ~= count then
        change_share(token, domain, spider, priority, length - count)
        wrong.miscounted = (wrong.miscounted or 0) + 1
      end
      if length > 0 and not starves then
        list_queue(crawl, spider, domain, priority)
      end
    end
  end
end
write_all()
return { wrong.unlisted or 0, wrong.miscounted or 0 }
