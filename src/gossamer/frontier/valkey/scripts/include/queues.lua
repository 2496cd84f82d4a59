-- Queues: the entries (packed requests) of one crawl, spider, domain and priority. A domain's agenda lists its queues
-- in the order in which they are served; a group is "<pool>|<spider>", a pool being a group of workers. Token: 16
-- characters that stand for a crawl. Run: one life of a crawl.
-- Must hold: the names of the keys, the form of the scores, and that a queue, its share and its counters change
-- together: `purge` and `lease` find queues through shares, and runs end by the counters.
-- BASE and now are in shard.lua; other names that are not declared below, in these files or their includes:
-- include shares
-- include ready

-- Returns the key of a queue.
local function queue_key(token, spider, domain, priority)
  return BASE .. "q:" .. token .. "|" .. spider .. "|" .. domain .. "|" .. priority
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
  local old, member = head_of(group, domain), crawl.token .. "|" .. priority
  change_agenda("ZADD", group, domain, agenda_score(priority, next_turn()), member)
  if not old then
    heads[group][domain] = { member = member, token = crawl.token, priority = priority,
      band = band_of(priority) }
    noted[group] = noted[group] or redis.call("ZADD", BASE .. "groups", now, group)
    place_domain(group, domain, nil)
  elseif priority > old.priority or old.resting then
    place_domain(group, domain, old.band)
  end
end

-- Adds entries (oldest first) to their queue: at the back, or (a single one) in front as if it had never left.
local function enqueue(crawl, spider, domain, priority, entries, in_front)
  local command = in_front and not crawl.lifo and "LPUSH" or "RPUSH"
  local length = call_on_key(command, queue_key(crawl.token, spider, domain, priority), entries)
  change_share(crawl.token, domain, spider, priority, #entries)
  count_queued(crawl.token, spider, priority, #entries)
  if length == #entries then -- else the queue was not empty, so it is on the agenda, or set aside
    join_agenda(crawl, spider, domain, priority)
  end
end
