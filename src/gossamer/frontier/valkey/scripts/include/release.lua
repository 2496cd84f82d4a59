-- The end of a request in flight. A scope is what shares one rate limit; a group, "<pool>|<spider>", is parked at a
-- scope while it waits for this.
-- Must hold: each lease is released once, or the scope would allow more or fewer requests in flight than its policy.
-- Names that are not declared below come from these files or their includes:
-- include ready

-- Ends a lease's hold on its scope, and places the domain again for the groups that waited for that.
local function release(scope, domain)
  local record = record_of(scope)
  record[IN_FLIGHT] = record[IN_FLIGHT] > 0 and record[IN_FLIGHT] - 1 or 0
  changed[scope] = true
  if record[PARKED] ~= "" then
    local parked = record[PARKED]
    record[PARKED] = ""
    for group in string.gmatch(parked, "([^\n]+)\n") do
      update_domain(group, domain)
    end
  end
end
