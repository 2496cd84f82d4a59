#!lua flags=allow-oom
-- Report what became of leases.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 worker  4 retention ms
--       then for each lease: id, outcome (fetched, failed, dropped, retry, postponed, returned,
--       forwarded), reason, delay ms,
--       new tail or "", number of drop counts, and for each of those: reason, count
-- Returns { "stale" } or { answers (1 settled, 0 already), tokens idle on this shard, tokens whose page budget is spent }
-- include common
-- include throttle
-- include queues
-- include finish
-- include deaths
local worker, retention = ARGV[3], tonumber(ARGV[4])
local leases_key = P .. "l:" .. worker
if not knows(worker) then
  return { "stale" }
end
redis.call("ZADD", P .. "workers", now, worker)

local CHILD = 10 -- a retry's priority is so much lower
local LOWEST = -65000

local touched = {}

-- `drops`: where in ARGV the drop counts begin; `count`: how many there are.
local function settle(lease, outcome, reason, delay, tail, drops, count)
  local run, token, priority, spider, domain, scope, entry, hopped, _, start = unpack(lease)
  release(scope, domain)
  local crawl = crawl_of(token)
  local unused = outcome == "returned" and hopped == ""
  if unused then
    refund(scope, policy_of(domain), budgets_of(policy_of(domain), crawl or nil, domain), start)
  end
  if not crawl or crawl.run ~= run then
    return
  end
  touched[token] = true
  tally(token, "h:" .. spider, -1)
  for k = 1, count do
    tally(token, "L:" .. spider .. ":" .. ARGV[drops + 2 * k - 2], tonumber(ARGV[drops + 2 * k - 1]))
  end
  local limits = terms_of(token, entry_terms(entry))
  local stop = ended(crawl, spider)
  if tail ~= "" then
    entry = with_tail(entry, tail)
  end
  if outcome == "fetched" then
    count_done(crawl, "f:" .. spider, 1)
    if crawl.max_pages then
      crawl.fetched = crawl.fetched + 1
      tally(token, "Y", 1)
    end
    if limits[2] then
      local share = share_of(token, domain)
      share.row[2] = share.row[2] + 1
      share.dirty = true
      if share.row[2] >= limits[2] and redis.call("SREM", P .. "z:" .. token, domain) == 1 then
        unstarve(crawl, domain) -- to be dropped as over budget by the next lease
      end
    end
    return
  end
  if outcome == "failed" or outcome == "dropped" then
    count_done(crawl, (outcome == "failed" and "F:" or "D:") .. spider .. ":" .. reason, 1)
  elseif stop then
    count_done(crawl, "D:" .. spider .. ":" .. stop, 1)
  elseif outcome == "retry" or outcome == "postponed" then
    if outcome == "retry" then
      entry = string.sub(entry, 1, 1) .. string.char(math.min(255, string.byte(entry, 2) + 1)) .. string.sub(entry, 3)
      priority = math.max(LOWEST, priority - CHILD)
    end
    redis.call("ZADD", P .. "later", now + delay, cmsgpack.pack(token, run, priority, spider, domain, entry))
    count_later(token, spider, domain, priority, 1)
    wake(crawl.pool, now + delay)
  else
    enqueue(crawl, spider, domain, priority, { entry }, true)
    if unused then -- its domain may be due sooner
      local home = crawl.pool .. "|" .. spider
      local _, head = head_of(home, domain)
      if head then
        place(home, domain, band_of(head))
      end
    end
  end
  give_back_page(crawl, domain, limits)
end

local ids, at = {}, {}
local i = 5
while i <= #ARGV do
  ids[#ids + 1] = ARGV[i]
  at[#at + 1] = i
  i = i + 6 + 2 * tonumber(ARGV[i + 5])
end
local raws = redis.call("HMGET", leases_key, unpack(ids))
redis.call("HDEL", leases_key, unpack(ids))
local answers, done, leases, scopes, of_crawl = {}, {}, {}, {}, {}
for k, raw in ipairs(raws) do
  if raw and not done[ids[k]] then
    done[ids[k]] = true
    local lease = { cmsgpack.unpack(raw) }
    leases[k] = lease
    scopes[#scopes + 1] = lease[6]
    of_crawl[lease[2]] = of_crawl[lease[2]] or {}
    table.insert(of_crawl[lease[2]], lease[5])
  end
end
load_records(scopes)
for token, domains in pairs(of_crawl) do
  load_shares(token, domains)
end
for k = 1, #ids do
  if leases[k] then
    i = at[k]
    settle(leases[k], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4], i + 6, tonumber(ARGV[i + 5]))
    answers[k] = 1
  else
    answers[k] = 0
  end
end

local idle, spent = {}, {}
for token in pairs(touched) do
  local crawl = crawl_of(token)
  if crawl.max_pages and crawl.state == "r" and crawl.fetched >= crawl.quota then
    if crawl.alone then -- no other shard has a say
      redis.call("HSET", P .. "c:" .. token, "st", "b")
      crawl.state = "b"
      drop_waiting(crawl, nil, "budget")
    else
      spent[#spent + 1] = token
    end
  end
  if check_done(token, retention) then
    idle[#idle + 1] = token
  end
end
write_all()
return { answers, idle, spent }
