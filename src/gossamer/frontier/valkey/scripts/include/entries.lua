-- Entries: requests as they lie in queues. An entry is 7 bytes of header, then the URL or what the client packed.
-- Header: flags (1: extended, 2 and 4: number of deaths, 8: see SUSPECT), attempt, depth (2 bytes), number of its terms
-- (3 bytes). codec.py packs and unpacks the same. Fixed, because entries are stored: a change needs another FORMAT in
-- identity.py.

-- An entry with this flag carries, between its header and the rest, the names of the workers that were declared dead
-- while they held it: the length (2 bytes), then each name and a line feed. Whether they really died is decided when
-- the entry is leased: `is_registered` removes a worker that calls again from `deaths`, however long after.
local SUSPECT = 8

-- Returns the number of an entry's terms, the last three bytes of its header.
local function terms_number_of(entry)
  local a, b, c = string.byte(entry, 5, 7)
  return a * 65536 + b * 256 + c
end

-- Returns the number of the terms of an entry that begins behind the first `at` bytes of a packed text (msgpack).
local function terms_number_in(packed, at)
  local mark = string.byte(packed, at + 1)
  -- The header of the entry as a text: one byte up to 31 bytes, two up to 255, three up to 65535, else five.
  local header = mark < 0xd9 and 1 or mark == 0xd9 and 2 or mark == 0xda and 3 or 5
  local a, b, c = string.byte(packed, at + header + 5, at + header + 7)
  return a * 65536 + b * 256 + c
end

-- Returns the names in an entry, and where the rest of it begins.
local function names_in(entry)
  if string.byte(entry, 1) < SUSPECT then
    return "", 8
  end
  local high, low = string.byte(entry, 8, 9)
  local length = high * 256 + low
  return string.sub(entry, 10, 9 + length), 10 + length
end

-- Returns the entry with another tail, packed by the client, and with flag 1 (extended).
local function with_tail(entry, tail)
  local flags = string.byte(entry, 1)
  local _, rest = names_in(entry)
  return string.char(flags % 2 == 0 and flags + 1 or flags) .. string.sub(entry, 2, rest - 1) .. tail
end
