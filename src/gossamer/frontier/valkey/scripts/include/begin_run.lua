-- The beginning of a run (one life of a crawl, from its first request to its end) on a shard. Generation: number of the
-- set of URLs that the crawl has seen; a run with another generation begins with an empty set. Token: 16 characters
-- that stand for a crawl. Terms: the options that one submission carries.
-- Must hold: the fields of c:{token}, which keys.py lists. What is left of an earlier run is purged before its record
-- goes: its queues are found through that. The new row keeps the seen-set and the terms of its generation, or URLs
-- would be fetched again.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include run_order
-- include drop_waiting
-- include seen

-- Drops what waits of an earlier run: it was given up, and the client that did so died before it told this shard.
-- Returns whether queues of it have to be purged first.
local function end_earlier_run(crawl)
  if drop_waiting(crawl, nil, "stopped") > 0 then
    redis.call("HSET", crawl.key, "st", "f")
  end
  local has_queues = redis.call("ZSCORE", BASE .. "purge", crawl.token)
  if has_queues then
    write_counters()
  end
  return has_queues
end

-- Begins a run on this shard. What was seen stays, unless the run has a seen-set of its own. `run`: { token, number,
-- generation, single: "1" where there is one shard, crawl (msgpack) }. `stopped`: "slink,eother", the spiders whose
-- part has ended. Returns the crawl, or nil while queues of an earlier run have to be purged first.
local function begin_run(run, stopped)
  local token, number, generation, single, packed_crawl = unpack(run)
  local before = crawl_of(token)
  local _, _, _, _, max_pages, rate, _, _, keeps_failed = unpack(cmsgpack.unpack(packed_crawl), 1, 9) -- see codec.py
  local row = { "run", number, "gen", generation, "st", "r", "crawl", packed_crawl }
  local same_seen_set = before and before.generation == generation
  if before then
    load_seen(before)
    if end_earlier_run(before) then
      return nil
    end
    if same_seen_set and keeps_failed then -- its counters and page budgets go on
      for _, field in ipairs(redis.call("HKEYS", before.key)) do
        if string.find(field, "^[cprs]") then -- how the run has ended, and fields that are set again below
          redis.call("HDEL", before.key, field)
        end
      end
    else
      redis.call("UNLINK", before.key, BASE .. "d:" .. token, BASE .. "failed:" .. token)
    end
    if not same_seen_set then
      redis.call("RPUSH", BASE .. "old", cmsgpack.pack(token, before.generation, before.buckets))
      redis.call("UNLINK", BASE .. "t:" .. token) -- the terms are those of the seen-set
    end
    redis.call("UNLINK", BASE .. "z:" .. token)
    redis.call("ZREM", BASE .. "ending", token)
  end
  if same_seen_set and before.seen > 0 then
    row[#row + 1], row[#row + 2] = "n", before.seen
    row[#row + 1], row[#row + 2] = before.only_fingerprint and "s" or "b", before.only_fingerprint or before.buckets
  end
  if same_seen_set and before.first_terms then
    row[#row + 1], row[#row + 2] = "t", before.first_terms -- the numbers of terms count on
  end
  if rate then
    redis.call("HSET", BASE .. "n", "rates", 1)
  end
  if max_pages and single == "1" then -- this shard has the whole page budget
    row[#row + 1], row[#row + 2], row[#row + 3], row[#row + 4] = "Q", max_pages, "alone", 1
  end
  local key = BASE .. "c:" .. token
  call_on_key("HSET", key, row)
  redis.call("ZREM", BASE .. "opened", token) -- where this is the home shard
  for letter, spider in string.gmatch(stopped, "([^,])([^,]+)") do
    redis.call("HSET", key, "parts", 1, "st:" .. spider, letter)
  end
  hash_changes[key], crawls[token] = nil, nil
  local crawl = crawl_of(token, "n", "b", "s")
  crawl.new = not before and {} -- fields that are written with its first counters
  return crawl
end
