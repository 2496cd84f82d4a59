-- Queues: the entries (packed requests) of one crawl, spider, domain and priority. A domain's agenda lists its queues
-- in the order in which they are served; a group is "<pool>|<spider>", a pool being a group of workers. Token: 16
-- characters that stand for a crawl. Run: one life of a crawl.
-- Must hold: the names of the keys, the form of the scores, and that a queue, its share and its counters change
-- together: `purge` and `lease` find queues through shares, and runs end by the counters.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include shares
-- include ready

local priority_texts = {} -- by number: to write a number as text takes longer than the rest of a key

-- Returns the key of a queue.
local function queue_key(token, spider, domain, priority)
  local text = priority_texts[priority] or "|" .. priority
  priority_texts[priority] = text
  return BASE .. "q:" .. token .. "|" .. spider .. "|" .. domain .. text
end

-- Part of stored scores. Larger, and a score of the lowest priority (LOWEST_PRIORITY in settle.lua) would reach
-- RESTING.
local TURNS = 2 ^ 36 -- turns before the scores of two priorities would overlap
local turn
local noted = {} -- groups that this script has noted in `groups`

-- Returns the turn of queues that this script puts on an agenda: behind those that are there. All of them share it.
local function next_turn()
  turn = turn or redis.call("HINCRBY", BASE .. "n", "turn", 1)
  return turn
end

-- Returns the score of a queue on its agenda: a higher priority comes first, then an earlier turn.
local function agenda_score(priority, at_turn)
  return -priority * TURNS + at_turn
end

-- Puts a queue that was empty on the agenda of its domain, which is placed again if this queue is now the next one there.
local function join_agenda(crawl, spider, domain, priority)
  local group = crawl.pool .. "|" .. spider
  local old, member = head_of(group, domain), crawl.token .. priority_texts[priority] -- queue_key has noted the text
  local score = agenda_score(priority, turn or next_turn())
  if not old then
    redis.call("ZADD", agenda_key(group, domain), score, member)
    local mine = heads[group]
    mine[member] = mine[member] or { member = member, token = crawl.token, priority = priority, band = band_of(priority) }
    mine[domain] = mine[member] -- as in head_of
    noted[group] = noted[group] or redis.call("ZADD", BASE .. "groups", now, group)
    place_domain(group, domain, nil)
    return
  end
  change_agenda("ZADD", group, domain, score, member)
  if priority > old.priority or old.resting then
    place_domain(group, domain, old.band)
  end
end

-- Adds entries (oldest first, some thousand at most) to their queue: at the back, or (a single one) in front as if it had
-- never left.
local function enqueue(crawl, spider, domain, priority, in_front, ...)
  local command, token, count = in_front and not crawl.lifo and "LPUSH" or "RPUSH", crawl.token, select("#", ...)
  local length = call(command, queue_key(token, spider, domain, priority), ...)
  change_share(token, domain, spider, priority, count)
  count_queued(token, spider, priority, count)
  if length == count then -- else the queue was not empty, so it is on the agenda, or set aside
    join_agenda(crawl, spider, domain, priority)
  end
end
