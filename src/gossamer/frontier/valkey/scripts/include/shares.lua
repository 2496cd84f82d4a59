-- Shares: what a crawl has on a domain. Token: 16 characters that stand for a crawl. Rows are read once, changed in
-- memory and written by write_all: a script that returns without it loses the changes.
-- Must hold: a row changes in the same call as the queues that it counts. `info` shows shares by domain, and `purge`
-- finds the queues through them, so a queue without its row would stay for ever. Fixed: the form of a row, below.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include counters

-- A share's row: pages reserved, pages fetched, then spider, priority and count for each of its queues. A priority
-- "l-10" counts requests of priority -10 that are to be queued later: they are in no queue. Example: { 3, 1, "link",
-- 50, 120, "link", "l40", 2 }. Stored: a change needs another FORMAT in identity.py.
local RESERVED, FETCHED, FIRST_QUEUE = 1, 2, 3
local shares = {} -- by token, then domain

-- Reads a crawl's shares of many domains with one command. A crawl that is new here has none.
local function load_shares(token, domains)
  local mine, crawl, missing, count = shares[token] or {}, crawls[token], {}, 0
  shares[token] = mine
  for i = 1, #domains do
    local domain = domains[i]
    if mine[domain] == nil then
      count = count + 1
      missing[count], mine[domain] = domain, false -- until it is read below: a domain may be named several times
    end
  end
  local is_stored = count > 0 and not (crawl and crawl.new)
  local rows = is_stored and call("HMGET", BASE .. "d:" .. token, unpack(missing)) or {}
  local byte, sub, unpack_values = string.byte, string.sub, cmsgpack.unpack
  for i = 1, count do
    local domain, row = missing[i], rows[i]
    local first = row and byte(row) or 0
    -- The elements of a short list are quicker to unpack one by one, behind the byte that is their number.
    row = first >= 0x90 and first < 0xa0 and { unpack_values(sub(row, 2)) } or row and unpack_values(row)
    mine[domain] = { row = row or { 0, 0 }, dirty = false }
  end
end

-- Returns a crawl's share on a domain, read where it was not yet: { row, dirty: whether it was changed }.
local function share_of(token, domain)
  if not (shares[token] and shares[token][domain]) then load_shares(token, { domain }) end
  return shares[token][domain]
end

-- Whether a row has a queue of this spider.
local function has_spider(row, spider)
  for i = FIRST_QUEUE, #row, 3 do
    if row[i] == spider then return true end
  end
  return false
end

-- Counts that the share's crawl has begun (1) or ceased (-1) to have requests of this spider on the domain.
local function count_app_domain(token, domain, spider, count)
  local crawl = crawls[token] or crawl_of(token)
  if crawl then count_in(BASE .. "app-domains:" .. spider .. "|" .. crawl.app, domain, count) end
end

-- Takes the queue whose three fields begin at `at` out of the row. Their order does not matter.
local function remove_queue(row, token, domain, spider, at)
  local last = #row
  row[at], row[at + 1], row[at + 2] = row[last - 2], row[last - 1], row[last]
  row[last], row[last - 1], row[last - 2] = nil, nil, nil
  if not has_spider(row, spider) then count_app_domain(token, domain, spider, -1) end
  if #row < FIRST_QUEUE then count_crawl(token, "doms", -1) end
end

-- Adds to the number of requests in a queue, or of those to be queued later; -INF takes all away. Returns how many there
-- are then.
local function change_share(token, domain, spider, priority, count)
  local share = shares[token] and shares[token][domain] or share_of(token, domain)
  local row = share.row
  share.dirty = true
  for i = FIRST_QUEUE, #row, 3 do
    if row[i] == spider and row[i + 1] == priority then
      local left = row[i + 2] + count
      row[i + 2] = left
      if left <= 0 then
        remove_queue(row, token, domain, spider, i)
        return 0
      end
      return left
    end
  end
  if count > 0 then
    local last = #row
    if last < FIRST_QUEUE or not has_spider(row, spider) then
      count_app_domain(token, domain, spider, 1)
    end
    if last < FIRST_QUEUE then
      count_crawl(token, "doms", 1)
      share.row = { row[RESERVED], row[FETCHED], spider, priority, count } -- a table of the right size from the start
      return count
    end
    row[last + 1], row[last + 2], row[last + 3] = spider, priority, count
    return count
  end
  return 0
end

-- Writes the rows that were changed, and deletes those that are empty.
local function write_shares()
  for token, mine in pairs(shares) do
    local key, rows, empty = BASE .. "d:" .. token, { nil, nil }, {} -- nil: room for a row
    for domain, share in pairs(mine) do
      if share.dirty then
        local row, n = share.row, #rows
        if #row < FIRST_QUEUE and row[RESERVED] == 0 and row[FETCHED] == 0 then
          empty[#empty + 1] = domain
        else
          rows[n + 1], rows[n + 2] = domain, cmsgpack.pack(row)
        end
      end
    end
    if rows[1] then call_on_key("HSET", key, rows) end
    if empty[1] then call_on_key("HDEL", key, empty) end
  end
end

writers[#writers + 1] = write_shares
