-- Agendas: which queue of a domain is next. A member is "<token>|<priority>" (a token is 16 characters that stand for a
-- crawl), and its score puts the queue of the highest priority first and, among those, the one that has waited longest
-- for its turn. A group is "<pool>|<spider>"; a pool is a group of workers with requests of their own.
-- Fixed, because agendas are stored: the form of a member, and RESTING.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include places
-- include crawls

-- Scores from here on: queues that rest until the time above it (see resting.lua). Must stay above the scores of all
-- queues that do not rest: 72000 * TURNS (queues.lua).
local RESTING = 5e15

local groups = {}

-- Returns a group's pool and spider.
local function group_parts(group)
  if not groups[group] then
    local pool, spider = string.match(group, "^(.-)|(.*)$")
    groups[group] = { pool = pool, spider = spider }
  end
  return groups[group]
end

local parts_by_member = {}
local requested_rates -- what has_requested_rates has read
local heads = {} -- of the domains' agendas, as far as they were read: by group, then domain

-- Returns the token and the priority in a member of an agenda.
local function read_member(member)
  local parts = parts_by_member[member]
  if not parts then
    parts = { string.sub(member, 1, 16), tonumber(string.sub(member, 18)) } -- a token has 16 characters
    parts_by_member[member] = parts
  end
  return parts[1], parts[2]
end

-- Returns the next queue of a domain, or false: { its member of the agenda, token, priority and band, `resting`: until when
-- even this one rests (nil: it does not), `second`: the member behind it (nil: there is none) }. Cached, and shared by
-- domains that have only this queue: callers must not change it.
local function head_of(group, domain)
  if not heads[group] then heads[group] = {} end
  local mine = heads[group]
  local head = mine[domain]
  if head == nil then
    local key, may_rest = BASE .. "a:" .. group .. "|" .. domain, requested_rates ~= false -- else scores do not matter
    local row = may_rest and call("ZRANGE", key, "0", "1", "WITHSCORES") or call("ZRANGE", key, "0", "1")
    local member, second, score = row[1], row[may_rest and 3 or 2], may_rest and (row[2] or 0) + 0 or 0
    local is_common = member and not second and score < RESTING
    head = is_common and mine[member] or false
    if member and not head then
      local token, priority = read_member(member)
      head = { member = member, second = second, resting = score >= RESTING and score - RESTING or nil, token = token,
        priority = priority, band = band_of(priority) }
      mine[is_common and member or domain] = head -- no domain has a name like a member
    end
    mine[domain] = head
  end
  return head
end

-- Changes an agenda. Every change must go through here, or `heads` would be out of date.
local function change_agenda(command, group, domain, ...)
  heads[group] = heads[group] or {}
  heads[group][domain] = nil
  return redis.call(command, agenda_key(group, domain), ...)
end

-- Whether any crawl of this shard ever asked for a rate or a number of requests in flight. Only then queues rest.
local function has_requested_rates()
  if requested_rates == nil then requested_rates = call("HGET", BASE .. "n", "rates") end
  return requested_rates
end

-- Returns a text that is equal for crawls that ask for the same rate and the same number of requests in flight.
local function limits_name(crawl)
  local rate = crawl.requested_rate
  return (rate and table.concat({ rate.hits, rate.window, tostring(rate.moderated) }, " ") or "") .. "|"
    .. (crawl.concurrency or "")
end

-- Returns the crawls among the domain's next queues that ask for other limits than this one. Looks at few queues, and at
-- none where no crawl ever asked for any. The domain has a queue.
local function crawls_with_other_limits(group, domain, crawl)
  local others = {}
  if head_of(group, domain).second and has_requested_rates() then
    local row = redis.call("ZRANGE", agenda_key(group, domain), 1, 20, "WITHSCORES")
    for i = 1, #row, 2 do
      local other = tonumber(row[i + 1]) < RESTING and crawl_of((read_member(row[i])))
      if other and limits_name(other) ~= limits_name(crawl) then
        others[#others + 1] = other
      end
    end
  end
  return others
end
