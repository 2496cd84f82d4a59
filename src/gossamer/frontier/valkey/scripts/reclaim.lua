#!lua flags=allow-oom
-- Put what dead workers, or one that leaves, still hold back in front of its queues. Some leases at a time; to be
-- repeated until none is left. A process may die between two calls: `dead` lists the workers until no lease is left.
-- Words: token: 16 characters that stand for a crawl; scope: what shares one rate limit; entry: a packed request, which
-- carries the names of the workers that were declared dead while they held it.
-- Must hold: a worker leaves `workers` before any of its leases goes back, or it could still settle a request that
-- another worker has; and the stored form of an entry (entries.lua).
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 ms after which a silent worker is dead, at least; 0: all are
--       4 retention ms
--       5 most leases a call  6 worker that leaves, or ""
--       7 until when silent workers are declared dead: a time of the shard, 0: not at all, "": whenever this runs
--       8 number of deaths after which a request is given up
-- Returns { requests put back, 1 when there are more, the shard's time, tokens idle on this shard ... }
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app-domains:{spider}|{appid}, app:{appid}, backlog, c:{token},
--         clock, d:{token}, dead, deaths, egresses, ending, event, events, expiries, groups, h:{token}, idle,
--         idle-until, l:{worker}, later, n, off:{pool}|{spider}, patience, per-egress:{pool}|{spider}, policy,
--         q:{token}|{spider}|{domain}|{priority}, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress},
--         running:{spider}|{appid}, running:|{appid}, t:{token}, w:{scope}, wait:{pool}, workers, x:{domain},
--         z:{token}
-- transition: leased -> queued on reclaim
-- transition: leased -> later on suspect
-- transition: leased -> dropped on stop
-- transition: leased -> dropped on expire
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- include leases
-- include release
-- include queue_later
-- include deaths
-- include check_finished
local heartbeat, retention, most, leaver = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
heartbeat = heartbeat > 0 and dead_after(heartbeat) or 0
local latest, deaths_limit = tonumber(ARGV[7]) or INF, tonumber(ARGV[8])
-- Heartbeats that a worker has to call again before a request is given up because of its death. May be more.
local DOUBT = 5
-- A request that silences this many workers is their cause, even if all of them call again later. May be more: names of
-- workers take room in the entry.
local MOST_NAMES = 10
-- How long a death counts against the requests that the worker held. May be longer; if it is shorter than a request
-- waits in its queue, a request that kills workers is not recognised. The script sweep has the same.
local WEEK = 604800000

-- Declare silent workers dead. From here on the calls of a dead worker find it unregistered, so it no longer works on
-- the requests that go back now.
if now <= latest then
  for _, worker in ipairs(redis.call("ZRANGEBYSCORE", BASE .. "workers", "-inf", now - heartbeat, "LIMIT", 0, 100)) do
    redis.call("ZREM", BASE .. "workers", worker)
    redis.call("ZADD", BASE .. "dead", now, worker)
    redis.call("ZADD", BASE .. "deaths", now, worker)
    redis.call("PEXPIRE", BASE .. "deaths", WEEK)
  end
end
if leaver ~= "" and is_registered(leaver) then
  redis.call("ZREM", BASE .. "workers", leaver)
  redis.call("ZADD", BASE .. "dead", now, leaver)
end

-- Returns the entry with the name of this worker, which was declared dead while it held the request. The first of the 7
-- bytes of an entry's header has the flags: 1 extended, 2 and 4 number of deaths, 8 (SUSPECT) names follow the header.
local function add_death(entry, worker)
  local flags = string.byte(entry, 1)
  local names, rest = names_in(entry)
  if not is_dead(worker) or string.find("\n" .. names, "\n" .. worker .. "\n", 1, true) then
    return entry -- the worker has called again since, or is in it already
  end
  names = names .. worker .. "\n"
  local _, count = string.gsub(names, "\n", "")
  if count >= MOST_NAMES then -- no names any more: a number of deaths in the flags, at which the request is given up
    return string.char(flags % 2 + 2 * math.min(deaths_limit, MOST_COUNTED_DEATHS)) .. string.sub(entry, 2, 7)
      .. string.sub(entry, rest)
  end
  return string.char(flags < SUSPECT and flags + SUSPECT or flags) .. string.sub(entry, 2, 7)
    .. string.char(math.floor(#names / 256), #names % 256) .. names .. string.sub(entry, rest)
end

local reclaimed_crawls, count = {}, 0

-- Puts the request of one lease in front of its queue. Drops it where its crawl or part has ended; where its workers
-- may have died of it, queues it for later, so that the last of them can call again before it is given up.
local function put_back(packed, worker)
  local run, token, priority, spider, domain, scope, entry = cmsgpack.unpack(packed)
  release(scope, domain, 1, string.sub(packed, -#SHARED) == SHARED and { [token .. "|" .. spider] = 1 })
  local crawl = crawl_of(token)
  if not crawl or crawl.run ~= run then
    return
  end
  reclaimed_crawls[token] = true
  count_crawl(token, "h:" .. spider, -1)
  return_page(crawl, spider, domain, terms_of(token, terms_number_of(entry)))
  local ended = end_reason(crawl, spider)
  if ended then
    count_done(crawl, "D:" .. spider .. ":" .. ended, 1)
    return
  end
  count = count + 1
  if worker ~= leaver then
    entry = with_attempt(add_death(entry, worker))
    if string.byte(entry, 1) >= SUSPECT and deaths_of(entry) >= deaths_limit then
      queue_later(crawl, { priority, spider, domain, entry }, now + DOUBT * heartbeat)
      return
    end
  end
  enqueue(crawl, spider, domain, priority, true, entry)
end

-- Returns some leases of a worker: { id, packed lease } each. Not by HSCAN: from the beginning of a large hash that was
-- emptied from there it may find nothing.
local function some_leases(key, limit)
  local row, found = redis.call("HRANDFIELD", key, limit + 1, "WITHVALUES"), {}
  for i = 1, #row, 2 do
    if row[i] ~= "last" and #found < limit then
      found[#found + 1] = { row[i], row[i + 1] }
    end
  end
  return found
end

local handled = 0
for _, worker in ipairs(redis.call("ZRANGE", BASE .. "dead", 0, 99)) do
  local key = BASE .. "l:" .. worker
  for _, lease in ipairs(some_leases(key, most - handled)) do
    local id, packed = unpack(lease)
    redis.call("HDEL", key, id)
    put_back(packed, worker)
    handled = handled + 1
  end
  if redis.call("HLEN", key) <= 1 then
    redis.call("UNLINK", key)
    redis.call("ZREM", BASE .. "dead", worker)
  end
  if handled >= most then
    break
  end
end
local more = redis.call("EXISTS", BASE .. "dead")

local idle = {}
for token in pairs(reclaimed_crawls) do
  if check_finished(token, retention, false) then
    idle[#idle + 1] = token
  end
end
write_all()
return { count, more, string.format("%.3f", now), unpack(idle) }
