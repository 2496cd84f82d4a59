#!lua flags=allow-oom
-- Set or remove a domain's policy, or the default. A domain goes where its policy now says at once; after a change of the
-- default all have to, some at a time: `rescoring` remembers that, whoever comes to do it.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 domain, or "" for the default  4 policy (msgpack map), or "" to remove
--       5 optional: the policy that must be there ("": none), or the new one already
-- Returns the new version of all policies on this shard, 0 when another policy is there
-- include common
-- include throttle
-- include queues
local field = ARGV[3] == "" and "*" or "d:" .. ARGV[3]
if ARGV[5] then
  local there = redis.call("HGET", P .. "policy", field) or ""
  if there ~= ARGV[5] and there ~= ARGV[4] then
    return 0
  end
end
if ARGV[4] == "" then
  redis.call("HDEL", P .. "policy", field)
else
  redis.call("HSET", P .. "policy", field, ARGV[4])
end
if ARGV[3] == "" then
  redis.call("SET", P .. "rescoring", "")
else
  local policy = policy_of(ARGV[3])
  if not policy.off and not policy.drops then
    keep_hits(ARGV[3], budgets_of(policy, nil, ARGV[3])[1].window)
  end
  for _, home in ipairs(redis.call("ZRANGE", P .. "homes", 0, -1)) do
    if redis.call("EXISTS", agenda_key(home, ARGV[3])) == 1 then
      replace(home, ARGV[3])
    end
  end
  write_all()
end
return redis.call("HINCRBY", P .. "policy", "version", 1)
