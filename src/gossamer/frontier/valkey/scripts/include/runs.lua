-- Which run of a crawl a shard is in. A generation counts for more than a run: it only ever grows, also when a crawl was
-- forgotten on its home shard and begins with run 1 again before this shard has swept the old one.

-- Where a run stands to what this shard knows: -1 the shard is in a later one, 0 in this one, 1 in an earlier or none.
local function run_ahead(crawl, run, gen)
  if not crawl then
    return 1
  end
  local here, there = tonumber(crawl.gen), tonumber(gen)
  if here == there then
    here, there = crawl.run, run
  end
  return here < there and 1 or here > there and -1 or 0
end

-- Begins a run on this shard: what was seen stays, unless the run has a seen-set of its own. `stopped`: "slink,eother",
-- the spiders whose part has ended; `single`: "1" where this shard is all there is. Returns the crawl, or nil while queues of an earlier run have to be purged first.
local function begin_run(token, run, gen, single, blob, stopped)
  local crawl, key = crawl_of(token), P .. "c:" .. token
  if crawl then
    if drop_waiting(crawl, nil, "stopped") > 0 then -- it was given up, and whoever did so died before this shard heard
      redis.call("HSET", key, "st", "f")
    end
    if redis.call("ZSCORE", P .. "purge", token) then
      write_tallies()
      return nil
    end
    if crawl.gen ~= gen then
      redis.call("RPUSH", P .. "old", cmsgpack.pack(token, crawl.gen, crawl.buckets))
      redis.call("UNLINK", P .. "t:" .. token) -- what is there now says under which terms the seen-set was filled
    end
  end
  local keep = crawl and crawl.gen == gen
  local seen, buckets = keep and crawl.seen or 0, keep and crawl.buckets or 1
  if crawl then
    redis.call("UNLINK", key, P .. "d:" .. token, P .. "z:" .. token)
    redis.call("ZREM", P .. "ending", token)
  end
  local row = { "run", run, "gen", gen, "st", "r", "crawl", blob }
  local function with(field, value)
    row[#row + 1], row[#row + 2] = field, value
  end
  if seen > 0 then
    with("n", seen)
    with(crawl.only and "s" or "b", crawl.only or buckets)
  end
  if keep and crawl.terms then
    with("t", crawl.terms) -- numbers of terms count on
  end
  local unpacked = cmsgpack.unpack(blob)
  if unpacked[6] then
    redis.call("HSET", P .. "n", "wishes", 1)
  end
  if unpacked[5] and single == "1" then -- the whole page budget is granted here
    with("Q", unpacked[5])
    with("alone", 1)
  end
  push("HSET", key, row)
  redis.call("ZREM", P .. "opened", token) -- where this is the home shard
  for letter, spider in string.gmatch(stopped, "([^,])([^,]+)") do
    redis.call("HSET", key, "parts", 1, "st:" .. spider, letter)
  end
  tallies[token] = nil
  crawls[token] = nil
  local begun = crawl_of(token)
  begun.new = not crawl and {} -- fields that are written with its first counters
  return begun
end
