-- Counters: of crawls, of requests in queues, and of requests that wait for an application. A script changes the same
-- counter many times; here the changes are added up, and write_counters writes each sum once. write_all (writes.lua)
-- calls it at the end of a script; a script that returns without write_all loses its changes.
-- Words: token: 16 characters that stand for a crawl, whose counters are fields of the hash c:{token}. Run: one life of
-- a crawl. Pool: a group of workers with requests of their own. To be queued later: retries and postponed requests,
-- which are in no queue until their time comes.
-- The table `crawls` (crawls.lua) has by token: nothing, where this script has not asked crawl_of for the crawl; false,
-- where it has, and this shard does not know the crawl; else a row. Of a row, this file uses:
--   token, key    the token, and the name of its hash
--   pool, app     the pool and the application of the crawl
--   added, done   requests added and ended in this run, as of now: add_urls.lua raises `added`, count_done below `done`
--   added_before, done_before   the same as the hash has them: fields A and Z
--   new           a table where this script has begun the crawl, which the shard did not know, and the hash has no
--                 counters yet: further fields that are to be written together with the first counters, by name. Empty:
--                 there are no such fields. false or nothing: the hash may have counters
-- May be changed: how the changes are gathered. Must hold: the names of the fields, which are stored (keys.py lists
-- them). A and Z must change in the same call as the requests that they count: a run is finished when they are equal.
-- BASE is from shard.lua. Other names that are not declared below come from these files or their includes:
-- include writes
-- include crawls

local crawl_changes = {} -- changes of a crawl's counters, by token, then field
local backlog_changes = {} -- changes of the number of requests in queues, by group ("<pool>|<spider>")
local app_changes = {} -- the same of requests in queues or to be queued later, by application, then spider

-- Adds to a crawl's counter.
local function count_crawl(token, field, count)
  local fields = crawl_changes[token]
  if not fields then
    fields = {}
    crawl_changes[token] = fields
  end
  fields[field] = (fields[field] or 0) + count
end

-- Writes changes of the counters of a hash. Removes those that become 0, so that an empty hash is deleted.
local function add_to_hash(key, counts)
  for field, count in pairs(counts) do
    if count ~= 0 and redis.call("HINCRBY", key, field, count) == 0 then
      redis.call("HDEL", key, field)
    end
  end
end

-- Writes the fields of crawl.new and the first counters of the crawl in one command. (call_on_key splits a long list of
-- fields and values into several.)
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

-- Writes all gathered changes. May be called in the middle of a script, too: what is counted afterwards is written by
-- the next call.
local function write_counters()
  for token, crawl in pairs(crawls) do
    if crawl then
      if crawl.added ~= crawl.added_before then
        count_crawl(token, "A", crawl.added - crawl.added_before)
        crawl.added_before = crawl.added
      end
      if crawl.done ~= crawl.done_before then
        count_crawl(token, "Z", crawl.done - crawl.done_before)
        crawl.done_before = crawl.done
      end
      if crawl.new and next(crawl.new) and not crawl_changes[token] then
        crawl_changes[token] = {} -- nothing is counted, but its fields have to be written below
      end
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

-- Counts requests of a crawl in queues, for its pool and a spider; a negative count for those that left them.
local function count_backlog(token, spider, count)
  local group = crawls[token].pool .. "|" .. spider
  backlog_changes[group] = (backlog_changes[group] or 0) + count
end

-- Counts requests that wait for the crawl's application, in queues or to be queued later; a negative count for those
-- that no longer do.
local function count_app(crawl, spider, count)
  local changes = app_changes[crawl.app]
  if not changes then
    changes = {}
    app_changes[crawl.app] = changes
  end
  changes[spider] = (changes[spider] or 0) + count
end

local queued_fields = {} -- by spider, the names of its counters: `all`, and one for each priority

-- Counts requests of a crawl in queues, everywhere: for its pool, its application, and the crawl itself. A negative
-- count for those that left them. The crawl is one that crawl_of has returned.
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
  count_app(crawls[token], spider, count)
  count_crawl(token, fields.all, count)
  count_crawl(token, field, count)
end

-- Counts requests that have come to their end. `field`: "f:<spider>" (fetched), "F:<spider>:<reason>" (failed) or
-- "D:<spider>:<reason>" (dropped).
local function count_done(crawl, field, count)
  crawl.done = crawl.done + count
  count_crawl(crawl.token, field, count)
end
