-- What of a crawl waits on each domain, and on which domains anything of an application waits.

-- A crawl's share of a domain: { reserved pages, fetched pages, spider, priority, count, ... }: what `info` shows by
-- domain, and where `stop` finds the queues. A priority "l-10" counts requests of priority -10 that wait for a retry; they
-- are in no queue. By token, then domain.
local shares = {}

local function shares_of(token)
  local mine = shares[token]
  if not mine then
    mine = {}
    shares[token] = mine
  end
  return mine
end

-- Reads a crawl's shares of many domains at once.
local function load_shares(token, domains)
  local mine, missing = shares_of(token), {}
  for _, domain in ipairs(domains) do
    if not mine[domain] then
      missing[#missing + 1] = domain
    end
  end
  if #missing > 0 then
    for index, raw in ipairs(redis.call("HMGET", P .. "d:" .. token, unpack(missing))) do
      mine[missing[index]] = { token = token, domain = missing[index], row = raw and cmsgpack.unpack(raw) or { 0, 0 } }
    end
  end
end

local function share_of(token, domain)
  local mine = shares_of(token)
  local share = mine[domain]
  if not share then
    local crawl = crawls[token]
    local raw = not (crawl and crawl.new) and redis.call("HGET", P .. "d:" .. token, domain)
    share = { token = token, domain = domain, row = raw and cmsgpack.unpack(raw) or { 0, 0 } }
    mine[domain] = share
  end
  return share
end

-- Requests in the queues of a share.
local function share_total(share)
  local row, total = share.row, 0
  for i = 5, #row, 3 do
    if type(row[i - 1]) == "number" then
      total = total + row[i]
    end
  end
  return total
end

-- Domains where requests of an application wait for a spider: how many more of its crawls have some there.
local app_domains = {}

local function has_spider(row, spider)
  for i = 3, #row, 3 do
    if row[i] == spider then
      return true
    end
  end
  return false
end

local function count_domain(share, spider, count)
  local crawl = crawl_of(share.token)
  if crawl then
    local key = P .. "app-domains:" .. spider .. "|" .. crawl.app
    local domains = app_domains[key]
    if not domains then
      domains = {}
      app_domains[key] = domains
    end
    domains[share.domain] = (domains[share.domain] or 0) + count
  end
end

local function share_add(share, spider, priority, count)
  local row = share.row
  share.dirty = true
  for i = 3, #row, 3 do
    if row[i] == spider and row[i + 1] == priority then
      row[i + 2] = row[i + 2] + count
      if row[i + 2] <= 0 then
        local last = #row
        row[i], row[i + 1], row[i + 2] = row[last - 2], row[last - 1], row[last]
        row[last], row[last - 1], row[last - 2] = nil, nil, nil
        if not has_spider(row, spider) then
          count_domain(share, spider, -1)
        end
        if #row == 2 then
          tally(share.token, "doms", -1)
        end
      end
      return
    end
  end
  if count > 0 then
    if #row == 2 then
      tally(share.token, "doms", 1)
    end
    if not has_spider(row, spider) then
      count_domain(share, spider, 1)
    end
    local last = #row
    row[last + 1], row[last + 2], row[last + 3] = spider, priority, count
  end
end

local function share_count(share, spider, priority)
  local row = share.row
  for i = 3, #row, 3 do
    if row[i] == spider and row[i + 1] == priority then
      return row[i + 2]
    end
  end
  return 0
end

-- Counts requests that wait for a retry, or (negative) wait no more.
local function count_later(token, spider, domain, priority, count)
  tally(token, "l:" .. spider, count)
  count_pending(crawl_of(token), spider, count)
  share_add(share_of(token, domain), spider, "l" .. priority, count)
end

local function write_shares()
  for token, mine in pairs(shares) do
    local key, rows, empty = P .. "d:" .. token, {}, {}
    for domain, share in pairs(mine) do
      if share.dirty then
        local row = share.row
        if #row == 2 and row[1] == 0 and row[2] == 0 then
          empty[#empty + 1] = domain
        else
          rows[#rows + 1] = domain
          rows[#rows + 1] = cmsgpack.pack(row)
        end
      end
    end
    push("HSET", key, rows)
    push("HDEL", key, empty)
  end
  shares = {}
  for key, domains in pairs(app_domains) do
    add_counts(key, domains)
  end
  app_domains = {}
end
