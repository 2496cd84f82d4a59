#!lua flags=allow-oom
-- Hand out requests that are due to a worker.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 worker  4 call number  5 limit  6 pool  7 egress  8 retention ms
--       9 wait: 1 to be woken when less than the limit was found
--       10 joins: 1 in the worker's first call to this shard  11... spiders, the first is served first
-- Returns { "stale" } or { "ok", ms until the next is due or "", { leases }, { crawls }, { terms }, { starved tokens }, { idle tokens },
--         enroll: 1 when this egress is new here }
--   leases: id, token, run, spider, domain, priority, entry, us from this call to its start,
--   even gap in us (negative: its domain is blacklisted, and it is to be dropped), ...
--   crawls: token, generation, crawl, ...
--   terms: token, number, blob, ...
-- include common
-- include throttle
-- include queues
-- include finish
-- include deaths
local worker, number, limit, pool, egress = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local retention = tonumber(ARGV[8])
local leases_key = P .. "l:" .. worker
local CALL = 2 ^ 20 -- ids a call may give

if not knows(worker)
  and (ARGV[10] ~= "1" or redis.call("ZSCORE", P .. "dead", worker)) then
  return { "stale" }
end
redis.call("ZADD", P .. "workers", now, worker)

local leases, crawl_rows, terms_rows, starved, idle = {}, {}, {}, {}, {}
local shown, last_token, last_run, last_terms = {}, nil, nil, nil

local function show(called, id, run, token, priority, spider, domain, _, entry, _, _, start, spacing)
  local n = #leases
  leases[n + 1], leases[n + 2], leases[n + 3], leases[n + 4] = id, token, run, spider
  leases[n + 5], leases[n + 6], leases[n + 7] = domain, priority, entry_for_worker(entry)
  leases[n + 8], leases[n + 9] = math.max(0, start - called) * 1000, spacing * 1000 -- a reply's numbers are whole
  local terms_number = entry_terms(entry)
  if token == last_token and run == last_run and terms_number == last_terms then
    return
  end
  last_token, last_run, last_terms = token, run, terms_number
  local name = token .. run
  if not shown[name] then
    shown[name] = true
    local row = redis.call("HMGET", P .. "c:" .. token, "gen", "crawl")
    crawl_rows[#crawl_rows + 1] = token
    crawl_rows[#crawl_rows + 1] = row[1] or "0"
    crawl_rows[#crawl_rows + 1] = row[2] or ""
  end
  name = token .. "/" .. terms_number
  if not shown[name] then
    shown[name] = true
    terms_rows[#terms_rows + 1] = token
    terms_rows[#terms_rows + 1] = terms_number
    terms_rows[#terms_rows + 1] = terms_of(token, terms_number)[4]
  end
end

-- The same call again, its reply was lost: the same answer, from the leases themselves. An earlier one was held up on
-- its way, and answered long since: its ids have been used.
local last = redis.call("HGET", leases_key, "last")
if last then
  local done, first, count, called = string.match(last, "^(%d+) (%d+) (%d+) (%S+)$")
  if done == number then
    for number_of_id = tonumber(first), tonumber(first) + tonumber(count) - 1 do
      local id = string.format("%.0f", number_of_id)
      local raw = redis.call("HGET", leases_key, id)
      if raw then
        local run, token, _, _, domain, scope = cmsgpack.unpack(raw)
        local crawl = crawl_of(token)
        if crawl and crawl.run == run then
          show(tonumber(called), id, cmsgpack.unpack(raw))
        else -- its run was given up; a fresh one may have forgotten its terms
          redis.call("HDEL", leases_key, id)
          release(scope, domain)
        end
      end
    end
  end
  if tonumber(number) <= tonumber(done) then
    write_all()
    return { "ok", "0", leases, crawl_rows, terms_rows, {}, {}, 0 } -- what is due by now, the next call finds
  end
end

-- Retries whose time has come join their queues.
for _, member in ipairs(redis.call("ZRANGEBYSCORE", P .. "later", "-inf", now, "LIMIT", 0, 256)) do
  local token, run, priority, spider, domain, entry = cmsgpack.unpack(member)
  redis.call("ZREM", P .. "later", member)
  local crawl = crawl_of(token)
  if crawl and crawl.run == run and not ended(crawl, spider) then
    count_later(token, spider, domain, priority, -1)
    enqueue(crawl, spider, domain, priority, { entry }, false)
  end
end

local MOST_DROPPED = 2000 -- expired entries a call may meet; the next call goes on
local dropped = 0
local taken = {} -- of each: { run, token, priority, spider, domain, scope, entry, no hop yet, its answer, start, even gap }

-- Lets a queue rest that only its own crawl's wish holds up, if a crawl with another wish waits behind it. True if so.
local function give_way(home, domain, scope, crawl, policy, budgets, token, priority)
  local at = next_allowed(scope, policy, budgets)
  if at <= now or #other_wishes(home, domain, crawl) == 0 then
    return false
  end
  rest(home, domain, token, priority, at)
  return true
end

-- Takes what is free at the head of one queue; true when the domain may have more. `second`: the queue behind it.
local function take(home, spider, domain, lease_egress, policy, token, priority, second)
  local crawl = crawl_of(token)
  local stop = not crawl and "stopped" or ended(crawl, spider)
  if stop then
    discard_queue(token, home, spider, domain, priority)
    return true
  end
  if block_of(domain)[1] > now and not policy.drops then
    return false
  end
  local scope = scope_of(policy, spider, domain, lease_egress)
  local record = record_of(scope)
  local budgets = budgets_of(policy, crawl, domain)
  local hits = free_hits(record, policy, budgets,
    math.min(limit - #taken, cap_of(policy, crawl, budgets) - record[INFLIGHT]))
  local allowed = #hits.starts
  local free = allowed
  if free == 0 then
    return give_way(home, domain, scope, crawl, policy, budgets, token, priority)
  end
  if crawl.max_pages then
    if crawl.reserved >= crawl.quota then
      starve(crawl, home, domain, priority)
      starved[token] = true
      return true
    end
    free = math.min(free, crawl.quota - crawl.reserved)
  end
  -- Crawls of one priority take turns.
  local turns = second and tonumber(string.sub(second, 18)) == priority
  if turns then
    free = 1
  end
  local share = share_of(token, domain)
  local queue = queue_key(token, spider, domain, priority)
  local entries = redis.call(crawl.lifo and "RPOP" or "LPOP", queue, math.min(free, 1000)) or {}
  local gone, count, held_back = 0, 0, nil
  for index, entry in ipairs(entries) do
    local limits = terms_of(token, entry_terms(entry))
    if limits[1] > 0 and wall >= limits[1] then
      count_done(crawl, "D:" .. spider .. ":expired", 1)
      gone = gone + 1
    elseif limits[2] and share.row[1] >= limits[2] then
      if share.row[2] >= limits[2] then
        count_done(crawl, "D:" .. spider .. ":budget", 1)
        gone = gone + 1
      else
        held_back = index
        break
      end
    else
      if limits[2] then
        share.row[1] = share.row[1] + 1
        share.dirty = true
      end
      count = count + 1
      taken[#taken + 1] = { crawl.run, token, priority, spider, domain, scope, entry, "", 0, hits.starts[count],
        policy.drops and -1 or hits.spacing }
    end
  end
  if gone > 0 and check_done(token, retention) then
    idle[#idle + 1] = token
  end
  if held_back then
    local back = {}
    for index = #entries, held_back, -1 do
      back[#back + 1] = entries[index]
    end
    push(crawl.lifo and "RPUSH" or "LPUSH", queue, back)
    starve(crawl, home, domain, priority)
  end
  dropped = dropped + gone
  local left = gone + count
  share_add(share, spider, priority, -left)
  count_queued(token, spider, priority, -left)
  if count > 0 then
    tally(token, "h:" .. spider, count)
    charge(scope, budgets, hits, count)
    record[INFLIGHT] = record[INFLIGHT] + count
    if crawl.max_pages then
      crawl.reserved = crawl.reserved + count
      tally(token, "R", count)
    end
  end
  if share_count(share, spider, priority) == 0 then
    change_agenda("ZREM", home, domain, token .. "|" .. priority)
  elseif turns and not held_back then
    change_agenda("ZADD", home, domain, "XX",
      agenda_score(priority, redis.call("HINCRBY", P .. "n", "turn", 1)), token .. "|" .. priority)
  end
  if count == allowed and gone == 0 and not second then
    return false -- nothing is free any more, and no other queue could be allowed what this one is not
  end
  return left > 0 or held_back ~= nil
end

-- Reads the heads of many domains, and at once what their crawls have there.
local function load_heads(home, domains)
  local of_crawl = {}
  for _, domain in ipairs(domains) do
    local token = head_of(home, domain)
    if token then
      local mine = of_crawl[token] or {}
      of_crawl[token] = mine
      mine[#mine + 1] = domain
    end
  end
  for token, mine in pairs(of_crawl) do
    load_shares(token, mine)
  end
end

local due, inspected = INF, 0

local function lease_from(home, spider, band, lease_egress)
  local key = ready_key(home, band, lease_egress)
  while #taken < limit and inspected < 1000 and dropped < MOST_DROPPED do
    write_ready()
    local domains = redis.call("ZRANGEBYSCORE", key, "-inf", now, "LIMIT", 0, math.min(64, limit - #taken))
    if #domains == 0 then
      break
    end
    load_domains(domains, spider, lease_egress or "")
    load_heads(home, domains)
    for _, domain in ipairs(domains) do
      if #taken >= limit then
        break
      end
      inspected = inspected + 1
      local policy = policy_of(domain)
      if (policy.by_ip and lease_egress == nil) or (not policy.by_ip and lease_egress) then
        write_ready()
        redis.call("ZREM", key, domain) -- the scope changed under it; place knows where it belongs
      elseif not policy.off then
        end_rests(home, domain)
        local more = true
        while more and #taken < limit and dropped < MOST_DROPPED do
          local token, priority, resting, second = head_of(home, domain)
          if not token or resting or band_of(priority) ~= band then
            break
          end
          more = take(home, spider, domain, lease_egress or "", policy, token, priority, second)
        end
      end
      place(home, domain, band)
    end
  end
  if #taken < limit then
    write_ready()
    local first = redis.call("ZRANGE", key, 0, 0, "WITHSCORES")
    if first[2] and first[2] ~= "inf" then
      due = math.min(due, tonumber(first[2]))
    end
  end
end

local enrolled = tonumber(redis.call("ZSCORE", P .. "egresses", egress) or 0)
local enroll = enrolled <= 0 and 1 or 0
if math.abs(enrolled) < now - 3600000 then
  redis.call("ZADD", P .. "egresses", enrolled > 0 and now or -now, egress)
end
for band = 1, BANDS do
  for i = 11, #ARGV do
    local spider = ARGV[i]
    local home = pool .. "|" .. spider
    lease_from(home, spider, band, nil)
    lease_from(home, spider, band, egress)
  end
end

-- Named by the worker's own call, not by a counter of this shard: after a failover that lost some of its last steps, a
-- counter would give an id again that the worker holds for another request. Its calls are counted through all its epochs:
-- it may settle what it held in an earlier one under its new name.
local first = string.format("%.0f", tonumber(number) * CALL)
if #taken > 0 then
  local rows = {}
  for index, lease in ipairs(taken) do
    local id = string.format("%.0f", tonumber(number) * CALL + index - 1)
    rows[2 * index - 1] = id
    rows[2 * index] = cmsgpack.pack(unpack(lease))
    show(now, id, unpack(lease))
  end
  push("HSET", leases_key, rows)
end
redis.call("HSET", leases_key, "last", string.format("%s %s %d %.3f", number, first, #taken, now))

local next_due = ""
if #taken < limit then
  if inspected >= 1000 or dropped >= MOST_DROPPED then
    due = now
  end
  local later = redis.call("ZRANGE", P .. "later", 0, 0, "WITHSCORES")
  if later[2] then
    due = math.min(due, tonumber(later[2]))
  end
  if due < INF then
    next_due = string.format("%.3f", math.max(0, due - now))
  end
  if ARGV[9] == "1" then
    local key = P .. "wait:" .. pool
    redis.call("ZADD", key, due == INF and "inf" or due, worker)
    redis.call("PEXPIRE", key, 3600000)
  end
end
local starved_tokens = {}
for token in pairs(starved) do
  starved_tokens[#starved_tokens + 1] = token
end
write_all()
return { "ok", next_due, leases, crawl_rows, terms_rows, starved_tokens, idle, enroll }
