-- Walks over all groups ("<pool>|<spider>") in the order of their names, one group a call of a script. A group that
-- comes up behind the walk is not visited.
-- Must hold: the order is by name, because the cursors that scripts store name a group.
-- Names that are not declared below come from these files or their includes:
-- include places

-- Returns the group after this one; nil after the last, "" gives the first. Not by time, as `groups` is sorted: that
-- order changes during a walk.
local function next_group(after)
  local found
  for _, group in ipairs(list_groups()) do
    if group > after and (not found or group < found) then
      found = group
    end
  end
  return found
end
