-- Domain policies: what the operator says about a domain, over the operator's default, over the built-in values.
-- Fixed: the names of a policy's fields and values (codec.py packs them), and the names of scopes, under which hits are
-- stored: a new name would forget the hits of the last window.
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include lanes
local BUILT_IN_HITS, BUILT_IN_WINDOW = 1, 1000 -- as BUILT_IN_POLICY in model/crawl.py; the window in ms

local policies, default_policy = {}, nil

-- Returns the policy that a domain's own one makes of the default (nil: it has none).
local function policy_from(own)
  local set = own and {} or default_policy
  if own then for name, value in pairs(default_policy) do set[name] = value end end
  if own then for name, value in pairs(own) do set[name] = value end end
  local scope, scale, blacklisted = set.scope or "domain", set.scale or 1, set.blacklisted
  if blacklisted and set.when_blacklisted == "dropped" then
    -- Requests are leased at once, and the workers record them as dropped. They have a scope of their own, so that no
    -- hit of the domain is charged.
    return { drops = true, explicit = true, hits = 1000, window = 1000, scale = 1, concurrency = INF, budgets = {} }
  end
  return {
    explicit = (set.hits or set.window) ~= nil,
    hits = set.hits or BUILT_IN_HITS, window = set.window or BUILT_IN_WINDOW,
    moderated = set.moderated ~= false, elastic = set.elastic ~= false, scale = scale,
    by_type = scope == "type" or scope == "type+ip", by_ip = scope == "ip" or scope == "type+ip",
    by_domain = scope == "domain",
    concurrency = set.concurrency, off = blacklisted or scale <= 0,
    budgets = {}, -- by crawl, where robots.txt asks for no delay
  }
end

local plain_policy -- of every domain that has no policy of its own
local common_policy -- the same where no domain has one, else nil
local policy_count -- the number of stored policies, and of what else is in their key; nil where it was not read

-- Returns the number of stored policies; 0 where there is none.
local function count_policies()
  policy_count = policy_count or redis.call("HLEN", BASE .. "policy")
  return policy_count
end

-- Reads the policies of many domains with one command.
local function load_policies(domains)
  if not default_policy then
    local length = count_policies()
    local found = length > 0 and redis.call("HMGET", BASE .. "policy", "*", "version") or { nil, nil }
    default_policy = found[1] and cmsgpack.unpack(found[1]) or {}
    plain_policy = policy_from(nil)
    common_policy = length == (found[1] and 1 or 0) + (found[2] and 1 or 0) and plain_policy or nil
  end
  if common_policy then return end
  local fields = {}
  for index, domain in ipairs(domains) do
    fields[index] = "d:" .. domain
  end
  local rows = redis.call("HMGET", BASE .. "policy", unpack(fields))
  for index, domain in ipairs(domains) do
    policies[domain] = rows[index] and policy_from(cmsgpack.unpack(rows[index])) or plain_policy
  end
end

-- Returns the policy in force for a domain.
local function policy_of(domain)
  if not common_policy and not policies[domain] then
    load_policies({ domain })
  end
  return common_policy or policies[domain]
end

-- Returns the name of what shares one budget with this request: a domain, with its spider or the egress address or both
-- where the policy says so.
local function scope_of(policy, spider, domain, egress)
  if policy.by_domain then return domain end
  if policy.drops then
    return domain .. "|,dropped" -- no name has a comma
  end
  if policy.by_ip then return domain .. "|" .. (policy.by_type and spider_of(spider) or "") .. "|" .. egress end
  return domain .. "|" .. spider_of(spider)
end
