#!lua flags=allow-oom
-- Set or remove a domain's policy, or the default. A domain is moved at once to where its policy now says. After a
-- change of the default all domains have to be, some at a time: `applying-policy` notes that, so that any process can
-- go on with it.
-- Must hold: the fields of the hash, and the packed policy (codec.py packs it, policies.lua reads it). The policy is
-- stored before domains are moved, and `applying-policy` in the same step as a new default, or a process that dies
-- would leave domains where the old policy put them. The version grows with every change.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 domain, or "" for the default  4 policy (msgpack map), or "" to remove
--       5 optional: the policy that must be there ("": none), or the new one already
-- Returns the new version of all policies on this shard, 0 when another policy is there
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, applying-policy, c:{token}, clock, egresses, groups, n,
--         off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, w:{scope}, wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include moves
-- include keep_hits
local domain, packed_policy, expected = ARGV[3], ARGV[4], ARGV[5]
local key, field = BASE .. "policy", domain == "" and "*" or "d:" .. domain
local current = redis.call("HGET", key, field) or ""
if expected and current ~= expected and current ~= packed_policy then
  return 0
end
if packed_policy == "" then
  redis.call("HDEL", key, field)
else
  redis.call("HSET", key, field, packed_policy)
end
if domain == "" then
  redis.call("SET", BASE .. "applying-policy", "")
else
  local policy = policy_of(domain)
  if not policy.off and not policy.drops then
    keep_hits(domain, budgets_of(policy, nil, domain)[1].window)
  end
  for _, group in ipairs(list_groups()) do
    if redis.call("EXISTS", agenda_key(group, domain)) == 1 then
      move_domain(group, domain)
    end
  end
  write_all()
end
return redis.call("HINCRBY", key, "version", 1)
