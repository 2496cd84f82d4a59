#!lua flags=allow-oom
-- Ask for a hit for a redirect inside the lease's domain, and mark its target as seen by this request. (Hit: a fetch as
-- the rate limit counts it. Entry: the packed request; its tail is the URL and what follows. Scope: what shares one
-- rate limit. Group: "<pool>|<spider>", the workers that may lease a request.)
-- Must hold: the numbers of the answers, the last of which is stored in the lease for a repeated call, and which
-- leaseholder.py reads; the lease keeps the fields and the order of lease.lua. The target is marked, the hit is charged
-- and the answer is stored in one step: a repeated call must not find its own target seen, or charge twice.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 worker  4 lease id  5 fingerprint of the target  6 new tail of the entry
-- Returns -1 unknown worker or lease, 0 another request has seen the target, 1 granted (a hit is charged), 2 wait
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, app:{appid}, backlog, c:{token}, clock, deaths, egresses,
--         l:{worker}, n, off:{pool}|{spider}, per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band},
--         r:{pool}|{spider}|{band}|{egress}, s:{token}:{generation}:{bucket}, w:{scope}, wait:{pool}, workers,
--         x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include workers
-- include end_reasons
-- include mark_seen
-- include entries
-- include ready
-- include hits
local STALE, SEEN, GRANTED, WAIT = -1, 0, 1, 2
local worker, id, fingerprint, tail = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local leases_key = BASE .. "l:" .. worker
local packed = is_registered(worker) and redis.call("HGET", leases_key, id)
if not packed then
  return STALE
end
local run, token, priority, spider, domain, scope, entry, hopped, answer, start, spacing = cmsgpack.unpack(packed)
local rest = string.sub(packed, -#SHARED) == SHARED and SHARED or "" -- see turns.lua
if hopped == fingerprint then
  return answer -- the same call again
end
local crawl = crawl_of(token)
if crawl then load_seen(crawl) end
if not crawl or crawl.run ~= run or end_reason(crawl, spider) then
  answer = WAIT -- settled as forwarded, the request will be dropped for the reason that ended the crawl
elseif not mark_seen(crawl, fingerprint) then
  answer = SEEN
else
  grow_seen(crawl)
  entry = with_tail(entry, tail)
  local policy = policy_of(domain)
  local record = record_of(scope)
  local is_open = not policy.off and not policy.drops and block_of(domain)[BLOCK_ENDS] <= now
  if is_open and charge_one(scope, record, policy, crawl, crawl.pool .. "|" .. spider, domain, now) then
    answer = GRANTED
    update_domain(crawl.pool .. "|" .. spider, domain)
  else
    answer = WAIT
  end
end
redis.call("HSET", leases_key, id,
  cmsgpack.pack(run, token, priority, spider, domain, scope, entry, fingerprint, answer, start, spacing) .. rest)
write_all()
return answer
