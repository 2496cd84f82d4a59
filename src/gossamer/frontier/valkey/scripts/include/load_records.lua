-- The records of many windows of hits (see windows.lua). Only saves commands, so it may be changed freely.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include windows

-- Reads the records of many scopes with one command.
local function load_records(scopes)
  local missing, keys = {}, {}
  for _, scope in ipairs(scopes) do
    if not records[scope] then
      missing[#missing + 1], keys[#keys + 1] = scope, BASE .. "w:" .. scope
    end
  end
  if #keys > 0 then
    for index, packed in ipairs(redis.call("MGET", unpack(keys))) do
      records[missing[index]] = unpack_record(packed)
    end
  end
end
