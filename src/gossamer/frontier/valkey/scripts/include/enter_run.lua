-- How a call that brings requests enters their run (one life of a crawl, from its first request to its end) on a shard,
-- and the terms (the options of one submission) that their entries (packed requests) name. `addition`: what the call
-- brings, by name: token, run, generation, single, packed_crawl, digest, packed_terms, confirmed, stopped (see add.lua),
-- and headers, an empty table.
-- Must hold: a run that was closed here is entered again only if the home shard, which decides when it ends, has
-- confirmed it since.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include agendas
-- include begin_run
-- include known_terms

-- Bytes. A hash with a longer value is stored in another form, which takes several times the memory
-- (hash-max-listpack-value). Smaller puts more terms into a key of their own.
local SHORT = 64

-- Returns the crawl in the run that is added to; or nil and the answer of the call. The cases:
--   this shard is in a later run, or the run was closed here (state "f") since the home shard confirmed it: refused
--   in an earlier run, or none: the run begins here, once the queues of the earlier one are purged
--   in the same run: continued, also where it was closed before the home shard confirmed it
local function crawl_for(addition)
  local token = addition.token
  local crawl = crawl_of(token, "n", "b", "s")
  local order = compare_run(crawl, addition.run, addition.generation) -- 1: a later run than the one here, -1: earlier
  if order < 0 or (order == 0 and crawl.state == "f"
    and addition.confirmed <= tonumber(redis.call("HGET", crawl.key, "closed") or 0)) then
    return nil, { "closed" }
  end
  if order > 0 then
    crawl = begin_run({ token, addition.run, addition.generation, addition.single, addition.packed_crawl },
      addition.stopped)
    if not crawl then
      return nil, { "purging" }
    end
    -- begin_run has stored it; agendas.lua may have read it before.
    requested_rates = crawl.requested_rate and "1" or requested_rates
  elseif crawl.state == "f" then
    redis.call("HSET", crawl.key, "st", "r")
    crawl.state = "r"
  end
  load_seen(crawl)
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

-- Returns the 7 bytes before each tail, as entries.lua and codec.py read them. Depth stops at 65535. They have the number
-- of the terms, which are kept only once something is queued under them.
local function entry_header(crawl, addition, extended, depth)
  local name = 2 * depth + extended
  local header = addition.headers[name]
  if not header then
    addition.terms_number = addition.terms_number or keep_terms(crawl, addition)
    local number, stored_depth = addition.terms_number, math.min(depth, 65535)
    header = string.char(extended, 0, math.floor(stored_depth / 256), stored_depth % 256, math.floor(number / 65536),
      math.floor(number / 256) % 256, number % 256)
    addition.headers[name] = header
  end
  return header
end
