-- Hits (fetches, as the rate limits count them) from before a longer window was asked for. A scope is what shares one
-- rate limit; its record holds the hits of its longest window (KEEP ms, see windows.lua). KEEP may only grow here: hits
-- that are forgotten cannot count later.
-- Names that are not declared below come from these files or their includes:
-- include ready
-- include load_records

-- Lets the hits of a domain live as long as this window. Hits of before the window was asked for then count in it, as
-- far as a shorter window has kept them.
local function keep_hits(domain, window)
  local policy = policy_of(domain)
  local spiders, addresses, scopes = { "" }, { "" }, {}
  if policy.by_type then
    for index, group in ipairs(list_groups()) do
      spiders[index] = group_parts(group).spider
    end
  end
  if policy.by_ip then
    addresses = list_egresses()
  end
  for _, spider in ipairs(spiders) do
    for _, address in ipairs(addresses) do
      scopes[#scopes + 1] = scope_of(policy, spider, domain, address)
    end
  end
  load_records({}, scopes)
  for _, scope in ipairs(scopes) do
    local record = record_of(scope)
    if #record >= HITS and record[KEEP] < window then
      record[KEEP], changed[scope] = window, true
    end
  end
end
