-- The reply of `lease`: leases, and what the worker has to know of their crawls and terms (the options that one
-- submission carries), each of these once. Token: 16 characters that stand for a crawl.
-- Fixed: the header of an entry, which is stored.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include deaths
-- include terms
-- include turns

local leases, shown = { nil, nil }, { nil, nil, nil, nil, nil, nil } -- nil: room for one lease
local ENTRY = 7 -- place of the entry among the fields of a lease (see lease.lua)

-- Returns a lease as a worker gets it: as it is stored, but for the mark SHARED (see turns.lua), and for an entry (a packed request, see entries.lua) with names
-- of workers. It has the number of those that died while they held it, in flags 2 and 4, and no names. Seven bytes are
-- its header.
local function lease_for_worker(packed)
  packed = string.sub(packed, -#SHARED) == SHARED and string.sub(packed, 1, -#SHARED - 1) or packed
  local lease = { cmsgpack.unpack(packed) }
  local entry = lease[ENTRY]
  if string.byte(entry, 1) < SUSPECT then
    return packed
  end
  local _, rest = names_in(entry)
  lease[ENTRY] = string.char(string.byte(entry, 1) % 2 + 2 * deaths_of(entry)) .. string.sub(entry, 2, 7)
    .. string.sub(entry, rest)
  return cmsgpack.pack(unpack(lease))
end

-- Adds to the reply what the worker has to know of a crawl and of terms, unless it is there.
local function show_crawl(crawl, terms_number)
  local token, terms, n = crawl.token, terms_of(crawl.token, terms_number), #shown
  if not crawl.is_shown then
    crawl.is_shown = true
    shown[n + 1], shown[n + 2], shown[n + 3], n = token, crawl.generation, crawl.packed, n + 3
  end
  if not terms.is_shown then
    terms.is_shown = true
    shown[n + 1], shown[n + 2], shown[n + 3] = token, terms_number, terms.blob
  end
end
