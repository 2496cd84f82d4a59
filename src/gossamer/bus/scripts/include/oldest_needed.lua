-- The oldest message of a stream that some group still needs.

-- Returns the two numbers of a message's id: milliseconds, and the position within them.
local function parse_id(id)
  local ms, number = string.match(id, "(%d+)-(%d+)")
  return { ms = tonumber(ms), number = tonumber(number) }
end

-- Whether one parsed id is older than another.
local function is_before(a, b)
  return a.ms < b.ms or (a.ms == b.ms and a.number < b.number)
end

-- Returns the oldest id that this group of a stream still needs, parsed. `row`: its part of XINFO GROUPS.
local function needed_by(stream, row)
  local fields = {}
  for at = 1, #row, 2 do
    fields[row[at]] = row[at + 1]
  end
  if fields["pending"] > 0 then -- delivered and not acknowledged
    local _, oldest_pending = unpack(redis.call("XPENDING", stream, fields["name"]))
    return parse_id(oldest_pending)
  end
  local needed = parse_id(fields["last-delivered-id"])
  needed.number = needed.number + 1 -- the first id that was not delivered
  return needed
end

-- Deletes the messages of a stream that every group has acknowledged. Returns how many; nil: it has no group.
local function trim_acknowledged(stream)
  local oldest
  for _, row in ipairs(redis.call("XINFO", "GROUPS", stream)) do
    local needed = needed_by(stream, row)
    if not oldest or is_before(needed, oldest) then
      oldest = needed
    end
  end
  return oldest and redis.call("XTRIM", stream, "MINID", string.format("%d-%d", oldest.ms, oldest.number))
end
