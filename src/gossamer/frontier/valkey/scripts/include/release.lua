-- The end of a request in flight. A scope is what shares one rate limit; a group, "<pool>|<spider>", is parked at a
-- scope while it waits for this.
-- Must hold: each lease is released once, or the scope would allow more or fewer requests in flight than its policy.
-- Names that are not declared below come from these files or their includes:
-- include ready

-- Ends the hold of so many leases (nil: of one) on their scope, and places its domain again for the groups that waited
-- for that. `in_turns`: those of them that were leased in turns (see turns.lua): their number by "<token>|<spider>".
local function release(scope, domain, count, in_turns)
  local record = record_of(scope)
  record[IN_FLIGHT] = math.max(0, record[IN_FLIGHT] - (count or 1))
  changed[scope] = true
  if record[PARKED] ~= "" then
    local turns = turns_of(scope, record)
    local parked = turns and end_turns(turns, scope, record, in_turns, domain) or record[PARKED]
    record[PARKED] = turns and record[PARKED] or ""
    for group in string.gmatch(parked, "([^\n]+)\n") do
      update_domain(group, domain)
      -- It waits again although a request has ended: others take what becomes free.
      if not turns and string.find("\n" .. record[PARKED], "\n" .. group .. "\n", 1, true) then
        await_turn(scope, record, group, domain)
      end
    end
  end
end

-- Ends the holds of many leases. `holds`: their number by scope; `in_turns`: see `release`, by scope. Reads the records
-- with one command; those of which only the number of requests in flight changes are written at once, without a table
-- for each.
local function release_all(holds, in_turns)
  local scopes, keys, rows_by_power = {}, {}, {}
  for scope in pairs(holds) do
    scopes[#scopes + 1], keys[#keys + 1] = scope, BASE .. "w:" .. scope
  end
  local packed_records = #keys > 0 and redis.call("MGET", unpack(keys)) or {}
  for i = 1, #scopes do
    local scope, packed = scopes[i], packed_records[i]
    local debt, in_flight, idle, parked, keep, start, hits, further
    if packed and not records[scope] then
      debt, in_flight, idle, parked, keep, start, hits, further = cmsgpack.unpack(packed)
    end
    if further or not start or parked ~= "" then
      records[scope] = records[scope] or unpack_record(packed)
      release(scope, string.match(scope, "^[^|]*"), holds[scope], in_turns[scope]) -- a scope begins with its domain
    else
      local left = in_flight > holds[scope] and in_flight - holds[scope] or 0
      local power = power_of_life(start, keep, left)
      local rows = rows_by_power[power] or {}
      rows[#rows + 1] = keys[i]
      rows[#rows + 1] = debt == 0 and in_flight < 128 and string.char(0, left) .. string.sub(packed, 3)
        or cmsgpack.pack(debt, left, idle, parked, keep, start, hits) -- a small number is one byte in msgpack
      rows_by_power[power] = #rows < 200 and rows or set_strings(power, rows)
    end
  end
  for power, rows in pairs(rows_by_power) do
    set_strings(power, rows)
  end
end
