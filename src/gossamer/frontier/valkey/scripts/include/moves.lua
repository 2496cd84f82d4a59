-- Domains after a change of their policy. Must hold: a domain is taken from wherever it may stand before it is placed,
-- or it would stand in two places and be leased under the old policy, too.
-- Names that are not declared below come from these files or their includes:
-- include ready

-- Takes the domain from wherever it stands to where its policy says.
local function move_domain(group, domain)
  remove_from_ready(group, domain)
  redis.call("SREM", place_key(group, OFF), domain)
  redis.call("SREM", place_key(group, PER_EGRESS), domain)
  place_domain(group, domain, nil)
end
