-- How URLs are added to a run (one life of a crawl, from its first request to its end): dropped where the seen-set has
-- them, else queued, in one step. Terms: the options that one submission carries. Entry: a packed request, as
-- entries.lua describes it. Home shard: the one that decides when a run ends. Part: what one spider does of a run.
-- May be changed: CALL_LIFE upwards; the order of the arguments, together with add.lua, add_many.lua and additions.py.
-- Must hold: a refusal ("closed", "purging") comes before anything is written; a fingerprint is marked and its request
-- queued in one call, or a client that dies would leave URLs that count as seen and are never fetched; the answer of a
-- named call is stored in that call, or a repetition would find its own URLs seen.
-- BASE, INF, now and wall are in shard.lua; other names that are not declared below, in these files or their includes:
-- include assets
-- include mark_seen
-- include queues
-- include terms
-- include check_finished
-- include idle_until
-- include end_reasons
-- include begin_run
-- include known_terms
-- include load_records

-- Bytes. A hash with a longer value is stored in another form, which takes several times the memory
-- (hash-max-listpack-value). Tuning only: smaller puts more terms into a key of their own.
local SHORT = 64
-- Must stay longer than a client repeats a call.
local CALL_LIFE = 3600000 -- ms that the answer of a named call is kept

-- Returns the answer that this call got before; nil where it did not, or where it has no name.
local function earlier_answer(addition)
  local packed = addition.call ~= "" and redis.call("GET", BASE .. "call:" .. addition.call)
  local number, answer = unpack(packed and cmsgpack.unpack(packed) or {})
  return number == addition.number and answer or nil
end

-- Returns the crawl in the run that is added to; or nil and the answer of the call. The cases:
--   this shard is in a later run, or the run was closed here (state "f") since the home shard confirmed it: refused
--   in an earlier run, or none: the run begins here, once the queues of the earlier one are purged
--   in the same run: continued, also where it was closed before the home shard confirmed it
local function crawl_for(addition)
  local token = addition.token
  local crawl = crawl_of(token)
  local order = compare_run(crawl, addition.run, addition.generation) -- 1: a later run than the one here, -1: earlier
  if order < 0 or (order == 0 and crawl.state == "f"
    and addition.confirmed <= tonumber(redis.call("HGET", crawl.key, "closed") or 0)) then
    return nil, { "closed" }
  end
  if order > 0 then
    local run = { token, addition.run, addition.generation, addition.single, addition.packed_crawl }
    crawl = begin_run(run, addition.stopped)
    if not crawl then
      return nil, { "purging" }
    end
    if crawl.requested_rate then
      requested_rates = "1" -- begin_run has stored it; agendas.lua may have read it before
    end
  elseif crawl.state == "f" then
    redis.call("HSET", crawl.key, "st", "r")
    crawl.state = "r"
  end
  return crawl
end

-- Keeps terms on this shard, and returns their number.
local function keep_terms(crawl, addition)
  local key, packed_terms = BASE .. "t:" .. crawl.token, addition.packed_terms
  if not crawl.first_terms and not crawl.has_long_terms and #packed_terms <= SHORT
    and (crawl.new or redis.call("EXISTS", key) == 0) then
    if crawl.new then
      crawl.new.t = packed_terms
    else
      redis.call("HSET", crawl.key, "t", packed_terms)
    end
    crawl.first_terms = packed_terms
  end
  local number = known_terms(crawl, addition.digest, packed_terms)
  if not number then
    number = redis.call("HLEN", key) / 2 + (crawl.first_terms and 2 or 1)
    redis.call("HSET", key, number, packed_terms, "d" .. addition.digest, number)
    crawl.has_long_terms = true
  end
  return number
end

-- Counts a URL that the seen-set has. `position`: its place among all URLs of the call. A seed that is submitted again
-- is no link, so the crawl's counts of links leave it out.
local function note_duplicate(answer, addition, position)
  answer.duplicates = answer.duplicates + 1
  if addition.seeds then
    answer.known[#answer.known + 1] = position
  end
end

-- Counts a URL that does not enter the seen-set. The caller must learn of each.
local function note_rejected(answer, addition, spider, position, reason)
  local rejected = answer.rejected
  rejected[#rejected + 1], rejected[#rejected + 2] = position, reason
  if addition.seeds then
    count_crawl(addition.token, "L:" .. spider .. ":" .. reason, 1)
  end
end

-- Returns how many requests lie in the queues of a share.
local function queued_in(share)
  local row, total = share.row, 0
  for i = FIRST_QUEUE, #row, 3 do
    if type(row[i + 1]) == "number" then
      total = total + row[i + 2]
    end
  end
  return total
end

-- Returns the 7 bytes before each tail, as entries.lua and codec.py read them. Depth stops at 65535.
local function entry_header(extended, depth, terms_number)
  return string.char(extended, 0, math.floor(math.min(depth, 65535) / 256), math.min(depth, 65535) % 256,
    math.floor(terms_number / 65536), math.floor(terms_number / 256) % 256, terms_number % 256)
end

-- Adds one batch, whose arguments begin at ARGV[at]: spider, domain, priority, depth, unfiltered, extended, number of
-- URLs, then the fingerprint and the tail of each (see add.lua). `first_position`: the place of its first URL among
-- all of the call. Returns where the next batch begins, and what is to be queued, for queue_batches.
local function add_batch(crawl, addition, answer, at, first_position)
  local spider, domain, priority, depth = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local unfiltered, extended, count = ARGV[at + 4] == "1", tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local urls, limits = at + 7, addition.limits
  local reason = end_reason(crawl, spider) or (limits.expires > 0 and wall >= limits.expires and "expired") or nil
  if reason then
    for k = 0, count - 1 do
      note_rejected(answer, addition, spider, first_position + k, reason)
    end
    return urls + 2 * count
  end
  local share = limits.domain_max_pending and share_of(crawl.token, domain)
  local room = share and limits.domain_max_pending - queued_in(share) - (addition.pending[domain] or 0) or INF
  -- The limit of assets counts those that were added before, and those of this call. An asset that was redirected to
  -- another domain is added there in a batch with a name of its own (call number 0): it was counted before, and its
  -- first request ends as moved.
  if spider == ASSETS and limits.max_assets and addition.number ~= "0" then
    local before = redis.call("HMGET", crawl.key, "a:" .. ASSETS, "D:" .. ASSETS .. ":moved")
    local in_call = (hash_changes[crawl.key] or {})["a:" .. ASSETS] or 0 -- added by this call so far
    room = math.min(room, limits.max_assets - (before[1] or 0) + (before[2] or 0) - in_call)
  end
  -- `header`: it has the number of the terms, which are kept only once something is queued under them
  local entries, found, header = {}, 0, nil
  for k = 0, count - 1 do
    local fingerprint = ARGV[urls + 2 * k]
    if found >= room then
      if not unfiltered and is_seen(crawl, fingerprint) then
        note_duplicate(answer, addition, first_position + k)
      else
        note_rejected(answer, addition, spider, first_position + k, "budget")
      end
    elseif mark_seen(crawl, fingerprint) or unfiltered then
      if not header then
        addition.terms_number = addition.terms_number or keep_terms(crawl, addition)
        header = entry_header(extended, depth, addition.terms_number)
      end
      found = found + 1
      entries[found] = header .. ARGV[urls + 2 * k + 1]
    else
      note_duplicate(answer, addition, first_position + k)
    end
  end
  if found > 0 then
    answer.added = answer.added + found
    crawl.added = crawl.added + found
    count_crawl(crawl.token, "a:" .. spider, found)
    addition.pending[domain] = (addition.pending[domain] or 0) + found
    return urls + 2 * count, { spider = spider, domain = domain, priority = priority, entries = entries }
  end
  return urls + 2 * count
end

-- Reads with few commands what decides when these domains are due. `spider`: of most of the requests.
local function load_domains(domains, spider)
  local scopes = {}
  load_policies(domains)
  for i = 1, #domains do
    scopes[i] = scope_of(policy_of(domains[i]), spider, domains[i], "")
  end
  load_records(domains, scopes)
end

-- Queues what the batches of a call have brought: { spider, domain, priority, entries } each, `domains`: their domains.
-- The shares, and of domains that had no request of the crawl what decides when they are due, are read together.
local function queue_batches(crawl, batches, domains)
  local new_domains = {}
  if not crawl.new then
    load_shares(crawl.token, domains)
  end
  for i = 1, #batches do
    if #share_of(crawl.token, domains[i]).row < FIRST_QUEUE then
      new_domains[#new_domains + 1] = domains[i]
    end
  end
  if #new_domains > 1 then
    load_domains(new_domains, batches[1].spider)
  end
  for i = 1, #batches do
    local batch = batches[i]
    enqueue(crawl, batch.spider, batch.domain, batch.priority, batch.entries, false)
  end
end

-- A run that begins with nothing but duplicates is finished at once. If the client dies before it says that nothing
-- more comes, maintenance looks at the run. Returns 1 where the run may be finished, and other shards have to be asked.
local function check_nothing_added(crawl, addition)
  if crawl.added == crawl.done and idle_until(crawl) == 0 then
    if addition.last then
      return check_finished(crawl.token, addition.retention, false) and 1 or 0
    elseif crawl.state == "r" then
      redis.call("ZADD", BASE .. "idle", now, crawl.token)
    end
  end
  return 0
end

-- Adds batches of URLs, whose arguments stand in ARGV from `first` to `final`. `addition` has the arguments of `add` by
-- name; returns the answer of `add`. write_all is to be called afterwards.
local function add_batches(addition, first, final)
  local earlier = earlier_answer(addition)
  if earlier then
    return earlier
  end
  local crawl, refusal = crawl_for(addition)
  if not crawl then
    return refusal
  end
  addition.limits, addition.pending = unpack_terms(addition.packed_terms), {} -- what is to be queued, by domain
  local other_terms -- whether what was seen here was seen under other terms
  if addition.seeds and not crawl.new then
    addition.terms_number = known_terms(crawl, addition.digest, addition.packed_terms)
    other_terms = not addition.terms_number
  end
  local result = { added = 0, duplicates = 0, known = {}, rejected = {} }
  local at, position, batches, domains, batch = first, 0, {}, {}, nil
  while at <= final do
    local count = tonumber(ARGV[at + 6])
    at, batch = add_batch(crawl, addition, result, at, position)
    batches[#batches + 1], domains[#domains + 1] = batch, batch and batch.domain
    position = position + count
  end
  queue_batches(crawl, batches, domains)
  grow_seen(crawl)
  local idle = result.added == 0 and check_nothing_added(crawl, addition) or 0
  local answer = { "ok", result.added, result.duplicates, idle, result.known, result.rejected,
    (other_terms and #result.known > 0) and 1 or 0 }
  if addition.call ~= "" then
    redis.call("SET", BASE .. "call:" .. addition.call, cmsgpack.pack({ addition.number, answer }), "PX", CALL_LIFE)
  end
  return answer
end
