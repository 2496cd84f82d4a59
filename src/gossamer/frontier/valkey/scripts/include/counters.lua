-- Counters: of crawls, of requests in queues, and of requests that wait for an application. They are gathered here and
-- written by write_all, each once; a script that returns without it loses them. Token: 16 characters that stand for a
-- crawl; its key c:{token} holds them. Run: one life of a crawl. Pool: a group of workers with requests of their own.
-- Must hold: the names of the fields, which are stored (keys.py lists them). A and Z (added, done) must change in the
-- same call as the requests that they count: a run is finished when they are equal.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include writes
-- include crawls

local crawl_changes = {} -- by token, then field
local backlog_changes = {} -- requests in queues, by group ("<pool>|<spider>")
local app_changes = {} -- requests in queues or to be queued later, by application, then spider

-- Adds to a crawl's counter. write_counters writes each once.
local function count_crawl(token, field, count)
  local fields = crawl_changes[token]
  if not fields then
    fields = {}
    crawl_changes[token] = fields
  end
  fields[field] = (fields[field] or 0) + count
end

-- Adds to the counters of a hash. Removes those that become 0, so that an empty hash is deleted.
local function add_to_hash(key, counts)
  for field, count in pairs(counts) do
    if count ~= 0 and redis.call("HINCRBY", key, field, count) == 0 then
      redis.call("HDEL", key, field)
    end
  end
end

-- Writes the record of a crawl that the shard did not know before, with its first counters, in one command.
local function write_new_crawl(crawl, counts)
  local row = {}
  for field, value in pairs(crawl.new) do
    row[#row + 1], row[#row + 2] = field, value
  end
  for field, count in pairs(counts) do
    if count ~= 0 then
      row[#row + 1], row[#row + 2] = field, count
    end
  end
  call_on_key("HSET", crawl.key, row)
  crawl.new = false
end

-- Writes all gathered changes: first the sums of a crawl's requests added (A) and done (Z) become changes like the
-- others, then each hash gets its changes.
local function write_counters()
  for token, crawl in pairs(crawls) do
    if crawl and crawl.added ~= crawl.added_before then
      count_crawl(token, "A", crawl.added - crawl.added_before)
      crawl.added_before = crawl.added
    end
    if crawl and crawl.done ~= crawl.done_before then
      count_crawl(token, "Z", crawl.done - crawl.done_before)
      crawl.done_before = crawl.done
    end
    if crawl and crawl.new and not crawl_changes[token] and next(crawl.new) then
      crawl_changes[token] = {}
    end
  end
  for token, counts in pairs(crawl_changes) do
    local crawl = crawls[token]
    if crawl and crawl.new then
      write_new_crawl(crawl, counts)
    else
      add_to_hash(BASE .. "c:" .. token, counts)
    end
  end
  crawl_changes = {}
  add_to_hash(BASE .. "backlog", backlog_changes)
  backlog_changes = {}
  for app, counts in pairs(app_changes) do
    add_to_hash(BASE .. "app:" .. app, counts)
  end
  app_changes = {}
end

writers[#writers + 1] = write_counters

-- Counts requests of a pool and spider in queues; a negative count for those that left them.
local function count_backlog(token, spider, count)
  local crawl = crawls[token]
  if crawl then
    local group = crawl.pool .. "|" .. spider
    backlog_changes[group] = (backlog_changes[group] or 0) + count
  end
end

-- Counts requests that wait for the crawl's application, in queues or to be queued later.
local function count_app(crawl, spider, count)
  local changes = app_changes[crawl.app]
  if not changes then
    changes = {}
    app_changes[crawl.app] = changes
  end
  changes[spider] = (changes[spider] or 0) + count
end

local queued_fields = {} -- names of counters, by spider

-- Counts requests in queues; a negative count for those that left them.
local function count_queued(token, spider, priority, count)
  local fields = queued_fields[spider]
  if not fields then
    fields = { all = "q:" .. spider }
    queued_fields[spider] = fields
  end
  local field = fields[priority]
  if not field then
    field = "p:" .. spider .. ":" .. priority
    fields[priority] = field
  end
  count_backlog(token, spider, count)
  if crawls[token] then
    count_app(crawls[token], spider, count)
  end
  count_crawl(token, fields.all, count)
  count_crawl(token, field, count)
end

-- Counts requests that have come to their end. `field`: "f:<spider>" (fetched), "F:<spider>:<reason>" (failed) or
-- "D:<spider>:<reason>" (dropped).
local function count_done(crawl, field, count)
  crawl.done = crawl.done + count
  count_crawl(crawl.token, field, count)
end
