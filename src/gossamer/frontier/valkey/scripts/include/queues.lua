-- Queues of entries, the agenda of a domain (which queue is next) and the ready sets (which domain is next).
-- A home is "<pool>|<spider>": who may lease.
local BANDS = 5
local TURNS = 68719476736 -- 2^36 turns before priorities would blur
local REST = 5000000000000000 -- agenda scores from here on: queues that rest until the time above it

local function band_of(priority)
  if priority >= 75 then return 1 end
  if priority >= 50 then return 2 end
  if priority >= 25 then return 3 end
  if priority >= 1 then return 4 end
  return 5
end

local function queue_key(token, spider, domain, priority)
  return P .. "q:" .. token .. "|" .. spider .. "|" .. domain .. "|" .. priority
end

local function agenda_key(home, domain)
  return P .. "a:" .. home .. "|" .. domain
end

local function ready_key(home, band, egress)
  return P .. "r:" .. home .. "|" .. band .. (egress and ("|" .. egress) or "")
end

-- Where a home's domains with work stand: 1 aside, 2 on the roster, 3 and on in a band (but for the view of an egress).
local PLACES = BANDS + 2

local function place_key(home, place)
  if place == 1 then
    return P .. "off:" .. home
  end
  return place == 2 and P .. "roster:" .. home or ready_key(home, place - 2)
end

-- include shares

local woken = {}

-- Remembers that a pool has work due at this time; write_all tells those who wait for something later.
local function wake(pool, at)
  if at < (woken[pool] or INF) then
    woken[pool] = at
  end
end

local function write_wakes()
  for pool, at in pairs(woken) do
    local key = P .. "wait:" .. pool
    if #redis.call("ZREVRANGEBYSCORE", key, "+inf", string.format("(%.17g", at), "LIMIT", 0, 1) > 0 then
      redis.call("DEL", key)
      redis.call("PUBLISH", ARGV[2] .. ":wake:" .. pool, string.match(P, "{(.-)}"))
    end
  end
  woken = {}
end

local ready_rows = {}

-- Writes what set_ready gathered; to be called before the ready sets are read again or taken from.
local function write_ready()
  for key, rows in pairs(ready_rows) do
    push("ZADD", key, rows)
  end
  ready_rows = {}
end

local function write_all()
  write_ready()
  write_tallies()
  write_shares()
  write_records()
  write_wakes()
end

local homes = {}

-- The pool and the spider of a home, and the heads of its domains' agendas as far as they were read.
local function split(home)
  local parts = homes[home]
  if not parts then
    local pool, spider = string.match(home, "^(.-)|(.*)$")
    parts = { pool = pool, spider = spider, heads = {} }
    homes[home] = parts
  end
  return parts
end

-- The next queue of a domain: its crawl, its priority and, where even the first one rests, until when; then the queue
-- behind it.
local function head_of(home, domain)
  local heads = split(home).heads
  local head = heads[domain]
  if head == nil then
    head = redis.call("ZRANGE", agenda_key(home, domain), 0, 1, "WITHSCORES")
    local member = head[1]
    if member then
      local score = tonumber(head[2])
      head[1], head[2] = string.sub(member, 1, 16), tonumber(string.sub(member, 18))
      head[4] = score >= REST and score - REST or nil
    else
      head = false
    end
    heads[domain] = head
  end
  if head then
    return head[1], head[2], head[4], head[3]
  end
end

-- Whether the domain has more than one queue here.
local function is_shared(home, domain)
  local _, _, _, second = head_of(home, domain)
  return second ~= nil
end

-- Every change of an agenda goes through here.
local function change_agenda(command, home, domain, ...)
  split(home).heads[domain] = nil
  return redis.call(command, agenda_key(home, domain), ...)
end

local egresses

local function known_egresses()
  egresses = egresses or redis.call("ZRANGE", P .. "egresses", 0, -1)
  return egresses
end

-- A longer window counts the hits from before it too, as far as a shorter one has kept them: they have to live as long.
local function keep_hits(domain, window)
  local policy = policy_of(domain)
  local spiders, addresses, scopes = { "" }, { "" }, {}
  if policy.by_type then
    for index, home in ipairs(redis.call("ZRANGE", P .. "homes", 0, -1)) do
      spiders[index] = split(home).spider
    end
  end
  if policy.by_ip then
    addresses = known_egresses()
  end
  for _, spider in ipairs(spiders) do
    for _, address in ipairs(addresses) do
      scopes[#scopes + 1] = scope_of(policy, spider, domain, address)
    end
  end
  load_records(scopes)
  for _, scope in ipairs(scopes) do
    local record = record_of(scope)
    if #record >= HITS and record[KEEP] < window then
      record[KEEP], changed[scope] = window, true
    end
  end
end

local wishes

-- Whether any crawl of this shard ever had a wish of its own: only then anything rests.
local function has_wishes()
  if wishes == nil then
    wishes = redis.call("HGET", P .. "n", "wishes")
  end
  return wishes
end

local function wish_key(crawl)
  local wish = crawl.wish
  return wish and table.concat({ wish[1], wish[2], tostring(wish[3]) }, " ") or ""
end

-- Crawls with another wish than this one's among the next queues of the domain; few are looked at, none where no crawl
-- ever had a wish.
local function other_wishes(home, domain, crawl)
  local others = {}
  if is_shared(home, domain) and has_wishes() then
    local row = redis.call("ZRANGE", agenda_key(home, domain), 1, 20, "WITHSCORES")
    for i = 1, #row, 2 do
      local other = tonumber(row[i + 1]) < REST and crawl_of(string.sub(row[i], 1, 16))
      if other and wish_key(other) ~= wish_key(crawl) then
        others[#others + 1] = other
      end
    end
  end
  return others
end

-- When this home may next lease from the domain through this egress; INF while a request in flight must end first.
local function due_of(home, spider, domain, egress, token, resting)
  local policy = policy_of(domain)
  if policy.drops then
    return resting or now
  end
  local crawl = crawl_of(token)
  local budgets = budgets_of(policy, crawl, domain)
  local scope = scope_of(policy, spider, domain, egress)
  local record = record_of(scope)
  local at = math.max(resting or next_allowed(scope, policy, budgets), block_of(domain)[1])
  local function park()
    if not string.find("\n" .. record[PARKED], "\n" .. home .. "\n", 1, true) then
      record[PARKED] = record[PARKED] .. home .. "\n"
      changed[scope] = true
    end
    return INF
  end
  -- A request in flight that ends before the next hit is due holds nothing up: that is looked at when it is due.
  if at <= now and record[INFLIGHT] >= cap_of(policy, crawl, budgets) then
    return park()
  end
  if at > now and crawl and not resting then
    for _, other in ipairs(other_wishes(home, domain, crawl)) do
      local theirs = budgets_of(policy, other, domain)
      local free_at = next_allowed(scope, policy, theirs)
      if free_at <= now and record[INFLIGHT] >= cap_of(policy, other, theirs) then
        free_at = park()
      end
      at = math.min(at, free_at)
    end
  end
  if at > now and is_shared(home, domain) and has_wishes() then
    local first = redis.call("ZRANGEBYSCORE", agenda_key(home, domain), REST, "+inf", "WITHSCORES", "LIMIT", 0, 1)
    if first[2] then
      at = math.min(at, tonumber(first[2]) - REST)
    end
  end
  return math.max(at, block_of(domain)[1])
end

-- Takes the domain out of every ready set of the home.
local function unready(home, domain)
  write_ready()
  for band = 1, BANDS do
    redis.call("ZREM", ready_key(home, band), domain)
    for _, egress in ipairs(known_egresses()) do
      redis.call("ZREM", ready_key(home, band, egress), domain)
    end
  end
end

local function set_ready(home, pool, band, egress, domain, at)
  local key = ready_key(home, band, egress)
  local rows = ready_rows[key] or {}
  ready_rows[key] = rows
  rows[#rows + 1] = at == INF and "inf" or at
  rows[#rows + 1] = domain
  if at < INF then
    wake(pool, at)
  end
end

-- Puts the domain where its head says: in the ready set of the head's band with the time it may be leased, or, switched
-- off, aside. `old_band`: where it may stand now (nil: nowhere).
local function place(home, domain, old_band)
  local parts, policy = split(home), policy_of(domain)
  local pool, spider = parts.pool, parts.spider
  local token, priority, resting = head_of(home, domain)
  if not token then
    if policy.by_ip then
      redis.call("SREM", P .. "roster:" .. home, domain)
      unready(home, domain)
    else
      if old_band then
        write_ready()
        redis.call("ZREM", ready_key(home, old_band), domain)
      end
      local scope = scope_of(policy, spider, domain, "")
      local record = record_of(scope)
      if record[IDLE] == 0 then
        record[IDLE], changed[scope] = 1, true
      end
    end
    if policy.off then
      redis.call("SREM", P .. "off:" .. home, domain)
    end
    return
  end
  if policy.off then
    unready(home, domain)
    redis.call("SADD", P .. "off:" .. home, domain)
    return
  end
  local band = band_of(priority)
  if policy.by_ip then
    redis.call("SADD", P .. "roster:" .. home, domain)
    for _, egress in ipairs(known_egresses()) do
      if old_band and old_band ~= band then
        write_ready()
        redis.call("ZREM", ready_key(home, old_band, egress), domain)
      end
      set_ready(home, pool, band, egress, domain, due_of(home, spider, domain, egress, token, resting))
    end
    return
  end
  if old_band and old_band ~= band then
    write_ready()
    redis.call("ZREM", ready_key(home, old_band), domain)
  end
  set_ready(home, pool, band, nil, domain, due_of(home, spider, domain, "", token, resting))
end

-- Takes the domain from wherever it stands to where its policy says.
local function replace(home, domain)
  unready(home, domain)
  redis.call("SREM", P .. "off:" .. home, domain)
  redis.call("SREM", P .. "roster:" .. home, domain)
  place(home, domain, nil)
end

-- The home behind this one by name: their order by time changes while somebody walks them. Nil after the last.
local function next_home(after)
  local found
  for _, home in ipairs(redis.call("ZRANGE", P .. "homes", 0, -1)) do
    if home > after and (not found or home < found) then
      found = home
    end
  end
  return found
end

local function agenda_score(priority, at_turn)
  return string.format("%.0f", -priority * TURNS + at_turn)
end

-- Lets a queue rest until its own crawl's wish allows a hit, so that it does not hold up the domain's other crawls.
local function rest(home, domain, token, priority, at)
  change_agenda("ZADD", home, domain, "XX", string.format("%.0f", REST + math.ceil(at)), token .. "|" .. priority)
end

-- Puts queues whose rest is over back in their places.
local function end_rests(home, domain)
  local _, _, resting, second = head_of(home, domain)
  if not (resting or second) or not has_wishes() then
    return
  end
  local key = agenda_key(home, domain)
  for _, member in ipairs(redis.call("ZRANGEBYSCORE", key, REST, REST + math.floor(now), "LIMIT", 0, 100)) do
    change_agenda("ZADD", home, domain, agenda_score(tonumber(string.sub(member, 18)), next_turn()), member)
  end
end

-- Gives entries (oldest first) to their queue, at the back, or in front as if they had never left.
local function enqueue(crawl, spider, domain, priority, entries, front)
  local command = "RPUSH"
  if front and not crawl.lifo then
    command = "LPUSH"
    local reversed = {}
    for i = #entries, 1, -1 do
      reversed[#reversed + 1] = entries[i]
    end
    entries = reversed
  end
  local length = push(command, queue_key(crawl.token, spider, domain, priority), entries)
  share_add(share_of(crawl.token, domain), spider, priority, #entries)
  count_queued(crawl.token, spider, priority, #entries)
  if length > #entries then
    return
  end
  local home = crawl.pool .. "|" .. spider
  local _, old, resting = head_of(home, domain)
  change_agenda("ZADD", home, domain, agenda_score(priority, next_turn()), crawl.token .. "|" .. priority)
  if not old then
    redis.call("ZADD", P .. "homes", now, home)
    place(home, domain, nil)
  elseif priority > old or resting then
    place(home, domain, band_of(old))
  end
end

-- Removes a queue whose crawl (or part) has ended, or its requests that wait for a retry; all were counted when it did.
local function discard_queue(token, home, spider, domain, priority)
  if type(priority) == "number" then
    redis.call("UNLINK", queue_key(token, spider, domain, priority))
    change_agenda("ZREM", home, domain, token .. "|" .. priority)
  end
  local share = share_of(token, domain)
  share_add(share, spider, priority, -share_count(share, spider, priority))
end

-- Sets a domain's queues of this crawl aside until a page of its budget comes back.
local function starve(crawl, home, domain, priority)
  change_agenda("ZREM", home, domain, crawl.token .. "|" .. priority)
  redis.call("SADD", P .. "z:" .. crawl.token, domain)
  redis.call("SADD", P .. "starving", crawl.token)
end

-- Puts the queues of a starved domain back on the agenda.
local function unstarve(crawl, domain)
  local row = share_of(crawl.token, domain).row
  for i = 3, #row, 3 do
    local spider, priority = row[i], row[i + 1]
    if type(priority) == "number" then
      local home = crawl.pool .. "|" .. spider
      local _, old, resting = head_of(home, domain)
      if not old then
        redis.call("ZADD", P .. "homes", now, home)
      end
      if change_agenda("ZADD", home, domain, "NX", agenda_score(priority, next_turn()),
        crawl.token .. "|" .. priority) == 1 and (not old or resting or priority > old) then
        place(home, domain, old and band_of(old))
      end
    end
  end
end

local function unstarve_some(crawl, count)
  if count <= 0 then
    return
  end
  for _, domain in ipairs(redis.call("SPOP", P .. "z:" .. crawl.token, math.min(count, 100))) do
    unstarve(crawl, domain)
  end
end

-- A request that was handed out is no page after all: what it took of the budgets goes to who waits for it.
local function give_back_page(crawl, domain, limits)
  if limits[2] then
    local share = share_of(crawl.token, domain)
    share.row[1] = math.max(0, share.row[1] - 1)
    share.dirty = true
    if redis.call("SREM", P .. "z:" .. crawl.token, domain) == 1 then
      unstarve(crawl, domain)
    end
  end
  if crawl.max_pages then
    crawl.reserved = crawl.reserved - 1
    tally(crawl.token, "R", -1)
    unstarve_some(crawl, crawl.quota - crawl.reserved)
  end
end

-- Ends a lease's hold on its scope and lets in who waited for that.
local function release(scope, domain)
  local record = record_of(scope)
  record[INFLIGHT] = math.max(0, record[INFLIGHT] - 1)
  changed[scope] = true
  if record[PARKED] ~= "" then
    local parked = record[PARKED]
    record[PARKED] = ""
    for home in string.gmatch(parked, "([^\n]+)\n") do
      local _, priority = head_of(home, domain)
      if priority then
        place(home, domain, band_of(priority))
      end
    end
  end
end
