-- Agendas: which queue of a domain is next. A member is "<token>|<priority>" (a token is 16 characters that stand for a
-- crawl), and its score puts the queue of the highest priority first and, among those, the one that has waited longest
-- for its turn. A group is "<pool>|<spider>"; a pool is a group of workers with requests of their own.
-- May be changed: the number of queues that crawls_with_other_rates looks at; fewer let a slow crawl hold up others.
-- Fixed, because agendas are stored: the form of a member, and RESTING.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include places
-- include crawls

-- Scores from here on: queues that rest until the time above it (see resting.lua). Must stay above the scores of all
-- queues that do not rest: 72000 * TURNS (queues.lua).
local RESTING = 5e15

local groups = {}

-- Returns a group's pool and spider, and the heads of its domains' agendas as far as they were read.
local function group_parts(group)
  local parts = groups[group]
  if not parts then
    local pool, spider = string.match(group, "^(.-)|(.*)$")
    parts = { pool = pool, spider = spider, heads = {} }
    groups[group] = parts
  end
  return parts
end

-- Returns the token and the priority in a member of an agenda.
local function read_member(member)
  return string.sub(member, 1, 16), tonumber(string.sub(member, 18)) -- a token has 16 characters
end

-- Returns the next queue of a domain: its crawl, its priority and, where even this one rests, until when; then the
-- member behind it.
local function head_of(group, domain)
  local heads = group_parts(group).heads
  local head = heads[domain]
  if head == nil then
    head = redis.call("ZRANGE", agenda_key(group, domain), 0, 1, "WITHSCORES")
    -- { member, score, second member, its score } becomes { token, priority, second member, until when it rests }.
    if head[1] then
      local score = tonumber(head[2])
      head[1], head[2] = read_member(head[1])
      head[4] = score >= RESTING and score - RESTING or nil
    else
      head = false
    end
    heads[domain] = head
  end
  if head then
    return head[1], head[2], head[4], head[3]
  end
end

-- Whether the domain has more than one queue in this group.
local function is_shared(group, domain)
  local _, _, _, second = head_of(group, domain)
  return second ~= nil
end

-- Changes an agenda. Every change must go through here, or `heads` would be out of date.
local function change_agenda(command, group, domain, ...)
  group_parts(group).heads[domain] = nil
  return redis.call(command, agenda_key(group, domain), ...)
end

local requested_rates

-- Whether any crawl of this shard ever asked for a rate of its own. Only then queues rest.
local function has_requested_rates()
  if requested_rates == nil then
    requested_rates = redis.call("HGET", BASE .. "n", "rates")
  end
  return requested_rates
end

-- Returns a text that is equal for equal requested rates; "" for a crawl that asked for none.
local function rate_name(crawl)
  local rate = crawl.requested_rate
  return rate and table.concat({ rate.hits, rate.window, tostring(rate.moderated) }, " ") or ""
end

-- Returns the crawls among the domain's next queues that have another requested rate than this one. Looks at few
-- queues, and at none where no crawl ever asked for a rate.
local function crawls_with_other_rates(group, domain, crawl)
  local others = {}
  if is_shared(group, domain) and has_requested_rates() then
    local row = redis.call("ZRANGE", agenda_key(group, domain), 1, 20, "WITHSCORES")
    for i = 1, #row, 2 do
      local other = tonumber(row[i + 1]) < RESTING and crawl_of((read_member(row[i])))
      if other and rate_name(other) ~= rate_name(crawl) then
        others[#others + 1] = other
      end
    end
  end
  return others
end
