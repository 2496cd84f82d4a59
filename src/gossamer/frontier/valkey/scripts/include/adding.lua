-- How URLs are added to a run: dedupe and enqueue in one step.
-- include seen
-- include throttle
-- include queues
-- include finish
-- include runs
local SHORT = 64 -- bytes: a hash with a longer value is kept in another form, which takes several times the memory

-- The number of terms on this shard; nil where nothing was queued under them.
local function known_terms(crawl, digest, packed_terms)
  if crawl.terms == packed_terms then
    return 1
  end
  local number = redis.call("HGET", P .. "t:" .. crawl.token, "d" .. digest)
  return number and tonumber(number)
end

-- Arguments and answer are those of `add`; the batches stand in ARGV from `first` to `final`. Afterwards: write_all.
local function add_batches(token, run, gen, single, blob, digest, packed_terms, confirmed, once, number, stopped, retention,
  last, seeds, first, final)
  if once ~= "" then
    local known = redis.call("GET", P .. "call:" .. once)
    known = known and cmsgpack.unpack(known)
    if known and known[1] == number then
      return known[2]
    end
  end

  local crawl, crawl_key = crawl_of(token), P .. "c:" .. token
  local ahead = run_ahead(crawl, run, gen)
  if ahead < 0 or (ahead == 0 and crawl.state == "f"
    and confirmed <= tonumber(redis.call("HGET", crawl_key, "closed") or 0)) then
    return { "closed" }
  end
  if ahead > 0 then
    crawl = begin_run(token, run, gen, single, blob, stopped)
    if not crawl then
      return { "purging" }
    end
    if crawl.wish then
      wishes = "1"
    end
  elseif crawl.state == "f" then
    redis.call("HSET", crawl_key, "st", "r")
    crawl.state = "r"
  end

  local limits = unpack_terms(packed_terms)
  local pending_cap = limits[3]
  local header_number -- of the terms on this shard, once something is queued
  if seeds and not crawl.new then
    header_number = known_terms(crawl, digest, packed_terms)
  end
  local strange = seeds and not crawl.new and not header_number -- what was seen here, was seen under other terms

  local function terms_number()
    if not header_number then
      local key = P .. "t:" .. token
      if not crawl.terms and not crawl.long_terms and #packed_terms <= SHORT
        and (crawl.new or redis.call("EXISTS", key) == 0) then
        if crawl.new then
          crawl.new.t = packed_terms
        else
          redis.call("HSET", crawl_key, "t", packed_terms)
        end
        crawl.terms = packed_terms
      end
      if crawl.terms == packed_terms then
        header_number = 1
      else
        header_number = redis.call("HGET", key, "d" .. digest)
        if not header_number then
          header_number = redis.call("HLEN", key) / 2 + (crawl.terms and 2 or 1)
          redis.call("HSET", key, header_number, packed_terms, "d" .. digest, header_number)
          crawl.long_terms = true
        end
        header_number = tonumber(header_number)
      end
    end
    return header_number
  end

  local added, duplicates, known, rejected = 0, 0, {}, {}
  local position = 0

  local function duplicate(spider, at)
    duplicates = duplicates + 1
    if seeds then
      tally(token, "L:" .. spider .. ":duplicate", 1)
      known[#known + 1] = at
    end
  end

  -- Everything that does not enter the seen-set goes through here: the caller must know each by name.
  local function reject(spider, at, reason)
    rejected[#rejected + 1], rejected[#rejected + 2] = at, reason
    if seeds then
      tally(token, "L:" .. spider .. ":" .. reason, 1)
    end
  end

  local i = first
  while i <= final do
    local spider, domain, priority, depth = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2]), tonumber(ARGV[i + 3])
    local unfiltered, extended, count = ARGV[i + 4] == "1", tonumber(ARGV[i + 5]), tonumber(ARGV[i + 6])
    i = i + 7
    local stop = ended(crawl, spider) or (limits[1] > 0 and wall >= limits[1] and "expired") or nil
    if stop then
      for k = 0, count - 1 do
        reject(spider, position + k, stop)
      end
    else
      local header -- of these terms, which are kept only once something is queued under them
      local room = pending_cap and (pending_cap - share_total(share_of(token, domain))) or INF
      local entries = {}
      for k = 0, count - 1 do
        local fingerprint = ARGV[i + 2 * k]
        if #entries >= room then
          if not unfiltered and is_seen(crawl, fingerprint) then
            duplicate(spider, position + k)
          else
            reject(spider, position + k, "budget")
          end
        elseif mark_seen(crawl, fingerprint) or unfiltered then
          header = header or entry_header(extended, depth, terms_number())
          entries[#entries + 1] = header .. ARGV[i + 2 * k + 1]
        else
          duplicate(spider, position + k)
        end
      end
      if #entries > 0 then
        added = added + #entries
        count_added(crawl, spider, #entries)
        enqueue(crawl, spider, domain, priority, entries, false)
      end
    end
    position = position + count
    i = i + 2 * count
  end
  grow_seen(crawl)
  -- A run that begins with nothing but duplicates is over at once; if the client dies before it says so, housekeeping looks.
  local idle = 0
  if added == 0 and crawl.added == crawl.done and rests_until(crawl) == 0 then
    if last then
      idle = check_done(token, retention) and 1 or 0
    elseif crawl.state == "r" then
      redis.call("ZADD", P .. "idle", now, token)
    end
  end
  local answer = { "ok", added, duplicates, idle, known, rejected, (strange and #known > 0) and 1 or 0 }
  if once ~= "" then
    redis.call("SET", P .. "call:" .. once, cmsgpack.pack({ number, answer }), "PX", 3600000)
  end
  return answer
end
