#!lua flags=allow-oom
-- Take back what dead workers, or one that leaves, still hold: in front of its queue. Some at a time; repeat until done.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 heartbeat ms  4 retention ms  5 most leases a call  6 worker that leaves, or ""
--       7 until when silent workers are taken for dead: a time, 0: not at all, "": whenever this is carried out
--       8 deaths after which a request is given up
-- Returns { requests taken back, 1 when there is more, the time, tokens idle on this shard ... }
-- include common
-- include throttle
-- include queues
-- include finish
-- include deaths
local heartbeat, retention, most, leaver = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local latest, most_deaths = tonumber(ARGV[7]) or INF, tonumber(ARGV[8])
local DOUBT = 5 -- heartbeats that a worker has to speak again before a request is given up because of its death
local WEEK = 604800000

-- From here on a dead worker's calls find it unknown, so nobody works on what goes back now.
if now <= latest then
  for _, worker in ipairs(redis.call("ZRANGEBYSCORE", P .. "workers", "-inf", now - heartbeat, "LIMIT", 0, 100)) do
    redis.call("ZREM", P .. "workers", worker)
    redis.call("ZADD", P .. "dead", now, worker)
    redis.call("ZADD", P .. "deaths", now, worker)
    redis.call("PEXPIRE", P .. "deaths", WEEK)
  end
  redis.call("ZREMRANGEBYSCORE", P .. "deaths", "-inf", now - WEEK)
end
if leaver ~= "" and knows(leaver) then
  redis.call("ZREM", P .. "workers", leaver)
  redis.call("ZADD", P .. "dead", now, leaver)
end

local touched, count, more = {}, 0, 0

local function take_back(raw, worker)
  local run, token, priority, spider, domain, scope, entry = cmsgpack.unpack(raw)
  release(scope, domain)
  local crawl = crawl_of(token)
  if not crawl or crawl.run ~= run then
    return
  end
  touched[token] = true
  tally(token, "h:" .. spider, -1)
  local limits = terms_of(token, entry_terms(entry))
  give_back_page(crawl, domain, limits)
  local stop = ended(crawl, spider)
  if stop then
    count_done(crawl, "D:" .. spider .. ":" .. stop, 1)
    return
  end
  count = count + 1
  if worker ~= leaver then
    entry = add_death(entry, worker)
    local flags, attempt = string.byte(entry, 1, 2)
    entry = string.char(flags, math.min(255, attempt + 1)) .. string.sub(entry, 3)
    if flags >= SUSPECT and deaths_of(entry) >= most_deaths then
      local due = now + DOUBT * heartbeat
      redis.call("ZADD", P .. "later", due, cmsgpack.pack(token, run, priority, spider, domain, entry))
      count_later(token, spider, domain, priority, 1)
      wake(crawl.pool, due)
      return
    end
  end
  enqueue(crawl, spider, domain, priority, { entry }, true)
end

-- Some leases of a worker: { id, raw } of each.
local function take_some(key, limit)
  local row, found = redis.call("HRANDFIELD", key, limit + 1, "WITHVALUES"), {}
  for i = 1, #row, 2 do
    if row[i] ~= "last" and #found < limit then
      found[#found + 1] = { row[i], row[i + 1] }
    end
  end
  return found
end

local handled = 0
for _, worker in ipairs(redis.call("ZRANGE", P .. "dead", 0, 99)) do
  local key = P .. "l:" .. worker
  -- Not HSCAN: from the beginning of a large hash that was emptied from there it may find nothing.
  for _, pair in ipairs(take_some(key, most - handled)) do
    redis.call("HDEL", key, pair[1])
    take_back(pair[2], worker)
    handled = handled + 1
  end
  if redis.call("HLEN", key) <= 1 then
    redis.call("UNLINK", key)
    redis.call("ZREM", P .. "dead", worker)
  end
  if handled >= most then
    break
  end
end
more = redis.call("EXISTS", P .. "dead")

local idle = {}
for token in pairs(touched) do
  if check_done(token, retention) then
    idle[#idle + 1] = token
  end
end
write_all()
return { count, more, string.format("%.3f", now), unpack(idle) }
