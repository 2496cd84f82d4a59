-- How URLs are added to a run (one life of a crawl, from its first request to its end): dropped where the seen-set has
-- them, else queued, in one step. Terms: the options that one submission carries. Entry: a packed request, as
-- entries.lua describes it. Home shard: the one that decides when a run ends. Part: what one spider does of a run.
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
-- include enter_run
-- include load_records

local FIRST_URL = 7 -- where the URLs of a batch begin: each has a fingerprint and a tail
-- Must stay longer than a client repeats a call.
local CALL_LIFE = 3600000 -- ms that the answer of a named call is kept

-- Returns the answer that this call got before; nil where it did not, or where it has no name.
local function earlier_answer(addition)
  local packed = addition.call ~= "" and redis.call("GET", BASE .. "call:" .. addition.call)
  local number, answer = unpack(packed and cmsgpack.unpack(packed) or {})
  return number == addition.number and answer or nil
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

-- Returns how many requests may still be added to the queues of a domain. `share`: that of the crawl there.
local function room_on(crawl, addition, spider, domain, share)
  local limits, room = addition.limits, INF
  if limits.domain_max_pending then
    room = limits.domain_max_pending - queued_in(share) - (addition.pending[domain] or 0)
  end
  -- The limit of assets counts those that were added before, and those of this call. An asset that was redirected to
  -- another domain is added there in a batch with a name of its own (call number 0): it was counted before, and its
  -- first request ends as moved.
  if spider == ASSETS and limits.max_assets and addition.number ~= "0" then
    local before = redis.call("HMGET", crawl.key, "a:" .. ASSETS, "D:" .. ASSETS .. ":moved")
    -- Added by this call so far.
    local in_call = ((hash_changes[crawl.key] or {})["a:" .. ASSETS] or 0) + (addition.added[ASSETS] or 0)
    room = math.min(room, limits.max_assets - (before[1] or 0) + (before[2] or 0) - in_call)
  end
  return room
end

-- Adds one batch: spider, domain, priority, depth, unfiltered, extended, then the fingerprint and the tail of each URL (see
-- add.lua). `first_position`: the place of its first URL among all of the call. A seed that is submitted again is no
-- link, so the crawl's counts of links leave it out. Returns how many requests are to be queued: their
-- entries stand in `parts` from FIRST_URL on.
local function add_batch(crawl, addition, answer, parts, first_position)
  local spider, domain, priority, depth, unfiltered, extended = unpack(parts, 1, 6)
  local expires = addition.limits.expires
  local reason = end_reason(crawl, spider) or (expires > 0 and wall >= expires and "expired")
  local share, found, header = share_of(crawl.token, domain), 0, nil
  local room = reason and 0 or room_on(crawl, addition, spider, domain, share)
  unfiltered = unfiltered or reason
  local mark = mark_seen
  for place = FIRST_URL, #parts, 2 do
    if found < room and (mark(crawl, parts[place]) or unfiltered) then
      header = header or entry_header(crawl, addition, extended, depth)
      parts[FIRST_URL + found] = header .. parts[place + 1] -- a place that has been read
      found = found + 1
    elseif found >= room and (unfiltered or not is_seen(crawl, parts[place])) then
      local rejected, cause = answer.rejected, reason or "budget" -- the caller must learn of each
      rejected[#rejected + 1], rejected[#rejected + 2] = first_position + (place - FIRST_URL) / 2, cause
      if addition.seeds then
        count_crawl(crawl.token, "L:" .. spider .. ":" .. cause, 1)
      end
    elseif addition.seeds then
      answer.known[#answer.known + 1] = first_position + (place - FIRST_URL) / 2
    end
  end
  if found > 0 then
    if #share.row < FIRST_QUEUE then
      addition.new_domains[#addition.new_domains + 1] = domain
    end
    addition.added[spider] = (addition.added[spider] or 0) + found
    addition.pending[domain] = (addition.pending[domain] or 0) + found
  end
  return found
end

-- Reads with few commands what decides when these domains are due. `spider`: of most of the requests.
local function load_domains(crawl, domains, spider)
  local scopes, agendas, group = {}, {}, crawl.pool .. "|" .. spider
  load_policies(domains)
  for i = 1, #domains do
    local domain = domains[i]
    local policy = common_policy or policy_of(domain)
    agendas[i] = agenda_key(group, domain)
    scopes[i] = policy.by_domain and domain or scope_of(policy, spider, domain, "")
  end
  load_records(domains, scopes)
  if redis.call("EXISTS", unpack(agendas)) == 0 then -- no crawl has a request there
    local mine = heads[group] or {}
    heads[group] = mine
    for i = 1, #domains do
      mine[domains[i]] = false
    end
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

-- Adds batches of URLs, which stand in ARGV from `first` to `final`. `addition` has the arguments of `add` by name;
-- returns the answer of `add`. write_all is to be called afterwards.
local function add_batches(addition, first, final)
  local earlier = earlier_answer(addition)
  if earlier then
    return earlier
  end
  local crawl, refusal = crawl_for(addition)
  if not crawl then
    return refusal
  end
  -- How many requests are to be queued, by spider (`added`) and by domain (`pending`). `headers`: by depth and flag.
  addition.limits, addition.added = unpack_terms(addition.packed_terms), {}
  addition.pending, addition.headers, addition.new_domains = {}, {}, {}
  local other_terms -- whether what was seen here was seen under other terms
  if addition.seeds and not crawl.new then
    addition.terms_number = known_terms(crawl, addition.digest, addition.packed_terms)
    other_terms = not addition.terms_number
  end
  local batches, domains, urls = {}, {}, 0
  for i = 1, final - first + 1 do
    local parts = { cmsgpack.unpack(ARGV[first + i - 1]) }
    batches[i], domains[i], urls = parts, parts[2], urls + (#parts - FIRST_URL + 1) / 2
  end
  load_shares(crawl.token, domains)
  -- Where few fingerprints fall into the same bucket, looking them up first would take more commands.
  if crawl.seen > 1 and urls > 3 * crawl.buckets then
    look_up(crawl, batches, FIRST_URL)
  end
  local result, position, counts = { added = 0, known = {}, rejected = {} }, 0, {}
  for i = 1, #batches do
    counts[i] = add_batch(crawl, addition, result, batches[i], position)
    position = position + (#batches[i] - FIRST_URL + 1) / 2
  end
  if #addition.new_domains > 1 then
    load_domains(crawl, addition.new_domains, batches[1][1])
  end
  for i = 1, #batches do
    if counts[i] > 0 then
      local spider, domain, priority = unpack(batches[i], 1, 3)
      enqueue(crawl, spider, domain, priority, false, unpack(batches[i], FIRST_URL, FIRST_URL - 1 + counts[i]))
    end
  end
  for spider, count in pairs(addition.added) do
    result.added, crawl.added = result.added + count, crawl.added + count
    count_crawl(crawl.token, "a:" .. spider, count)
  end
  grow_seen(crawl)
  local idle = result.added == 0 and check_nothing_added(crawl, addition) or 0
  local known, rejected = result.known, result.rejected -- "" instead of an empty list costs less
  local answer = { "ok", result.added, position - result.added - #rejected / 2, idle, known[1] and known or "",
    rejected[1] and rejected or "", (other_terms and known[1]) and 1 or 0 }
  if addition.call ~= "" then
    redis.call("SET", BASE .. "call:" .. addition.call, cmsgpack.pack({ addition.number, answer }), "PX", CALL_LIFE)
  end
  return answer
end
