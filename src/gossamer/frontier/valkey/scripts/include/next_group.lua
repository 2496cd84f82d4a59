-- Walks over all groups.
-- include places

-- Returns the group after this one by name; nil after the last. Not by time: that order changes during a walk.
local function next_group(after)
  local found
  for _, group in ipairs(list_groups()) do
    if group > after and (not found or group < found) then
      found = group
    end
  end
  return found
end
