-- The reply of `lease`: leases, and what the worker has to know of their crawls and terms (the options that one
-- submission carries), each of these once. Token: 16 characters that stand for a crawl.
-- May be changed: the values and their order, together with LeaseDecoder in codec.py, which reads them by their places:
-- each release loads its own scripts. Fixed: the header of an entry, which is stored.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include deaths
-- include terms

local leases, crawl_rows, terms_rows, shown = {}, {}, {}, {} -- shown: the crawls and terms in the reply, by name
local last_token, last_run, last_terms -- of the last lease, which most often has the next one's crawl and terms

-- Returns an entry (a packed request, see entries.lua) as a worker gets it: with the number of workers that died while
-- they held it, in flags 2 and 4, and without their names. Seven bytes are its header.
local function entry_for_worker(entry)
  local flags = string.byte(entry, 1)
  if flags < SUSPECT then
    return entry
  end
  local _, rest = names_in(entry)
  return string.char(flags % 2 + 2 * deaths_of(entry)) .. string.sub(entry, 2, 7) .. string.sub(entry, rest)
end

-- Adds to the reply what the worker has to know of a crawl's run and of terms, unless it is there.
local function show_crawl(token, run, terms_number)
  local name = token .. run
  if not shown[name] then
    shown[name] = true
    local generation, crawl = unpack(redis.call("HMGET", BASE .. "c:" .. token, "gen", "crawl"))
    crawl_rows[#crawl_rows + 1] = token
    crawl_rows[#crawl_rows + 1] = generation or "0"
    crawl_rows[#crawl_rows + 1] = crawl or ""
  end
  name = token .. "/" .. terms_number
  if not shown[name] then
    shown[name] = true
    terms_rows[#terms_rows + 1] = token
    terms_rows[#terms_rows + 1] = terms_number
    terms_rows[#terms_rows + 1] = terms_of(token, terms_number).blob
  end
end

-- Adds a lease (its fields: see `taken` in lease.lua) to the reply. `called`: the time of the call that got it.
local function show_lease(called, id, lease)
  local run, token, priority, spider, domain, _, entry, _, _, start, spacing = unpack(lease)
  local n = #leases
  leases[n + 1], leases[n + 2], leases[n + 3], leases[n + 4] = id, token, run, spider
  leases[n + 5], leases[n + 6], leases[n + 7] = domain, priority, entry_for_worker(entry)
  leases[n + 8], leases[n + 9] = math.max(0, start - called) * 1000, spacing * 1000 -- us, whole as a reply needs
  local terms_number = terms_number_of(entry)
  if token ~= last_token or run ~= last_run or terms_number ~= last_terms then
    last_token, last_run, last_terms = token, run, terms_number
    show_crawl(token, run, terms_number)
  end
end
