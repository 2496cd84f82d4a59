-- The records of many windows of hits (see windows.lua), and the blocks of many domains (see budgets.lua). Only saves
-- commands, so it may be changed freely.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include windows

-- Reads the blocks of these domains and the records of these scopes with one command, where they were not read yet.
local function load_records(domains, scopes)
  local keys, missing = {}, {}
  for i = 1, #domains do
    keys[i] = BASE .. "x:" .. domains[i]
  end
  for i = 1, #scopes do
    local scope = scopes[i]
    if records[scope] == nil then
      missing[#missing + 1], keys[#keys + 1] = scope, BASE .. "w:" .. scope
      records[scope] = false -- until it is read below: a scope may be named several times
    end
  end
  local packed = #keys > 0 and redis.call("MGET", unpack(keys)) or {}
  for i = 1, #domains do
    blocks[domains[i]] = packed[i] and cmsgpack.unpack(packed[i]) or NO_BLOCK
  end
  for i = 1, #missing do
    records[missing[i]] = unpack_record(packed[#domains + i])
  end
end
