-- The records of many windows of hits (see windows.lua), and the blocks of many domains (see budgets.lua). Reading many
-- at once saves commands.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include windows

-- Reads the blocks of these domains and the records of these scopes with one command, where they were not read yet.
local function load_records(domains, scopes)
  local keys, missing, size, count = { nil, nil }, { nil }, #domains, 0 -- nil: room for one domain
  local block_keys, record_keys = BASE .. "x:", BASE .. "w:"
  for i = 1, size do
    keys[i] = block_keys .. domains[i]
  end
  for i = 1, #scopes do
    local scope = scopes[i]
    if not records[scope] then -- one that is named several times is read as often
      count = count + 1
      missing[count], keys[size + count] = scope, record_keys .. scope
    end
  end
  local packed, unpack_values = size + count > 0 and call("MGET", unpack(keys)) or {}, cmsgpack.unpack
  for i = 1, size do
    local block = packed[i]
    blocks[domains[i]] = block and unpack_values(block) or NO_BLOCK
  end
  for i = 1, count do
    local record = packed[size + i]
    records[missing[i]] = record and { unpack_values(record) } or unpack_record(false)
  end
end
