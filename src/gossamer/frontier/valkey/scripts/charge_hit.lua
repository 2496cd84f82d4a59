#!lua flags=allow-oom
-- Charge a hit (a fetch as the rate limits count it) for a request that no queue holds, such as an image. (Scope: what
-- shares one rate limit. Egress: the address that requests leave from. Token: 16 characters that stand for a crawl. A
-- policy is `off` for a paused domain and `drops` for one whose requests are dropped at once.)
-- Must hold: the hit is charged to the same scope and windows as those of leases, or the domain would get more than its
-- rate limit allows. It is not counted as in flight.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 token  4 spider  5 domain  6 egress
--       7 hits  8 window ms  9 moderated 1|0: the crawl's requested rate, or "" each
-- Returns { 1 when a hit was charged, ms until it starts }, or { 0, ms until it is worth asking again, or ""
--         when that is not known }
-- Touches (see keys.py) c:{token}, clock, policy, w:{scope}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include turns
local token, spider, domain, egress = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local rate = ARGV[7] ~= ""
  and { hits = tonumber(ARGV[7]), window = tonumber(ARGV[8]), moderated = ARGV[9] == "1" } or nil
local policy = policy_of(domain)
if policy.off or policy.drops then
  return { 0, "" }
end
local blocked = block_of(domain)[BLOCK_ENDS]
local scope = scope_of(policy, spider, domain, egress)
local crawl, record = { token = token, requested_rate = rate }, record_of(scope)
local known = record[PARKED] ~= "" and crawl_of(token)
local latest = blocked <= now and now + EARLY or 0
local start, due = charge_one(scope, record, policy, crawl, known and known.pool .. "|" .. spider, domain, latest)
write_all()
if start then
  return { 1, string.format("%.3f", start - now) }
end
return { 0, string.format("%.3f", math.max(blocked, due) - now) }
