#!lua flags=allow-oom
-- Ask for a hit for a redirect inside the lease's domain, and mark its target as seen by this request.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 worker  4 lease id  5 fingerprint of the target  6 new tail of the entry
-- Returns -1 stale worker or lease, 0 seen before by another request, 1 granted (charged), 2 wait
-- include common
-- include seen
-- include throttle
-- include queues
-- include deaths
local worker, id, fingerprint, tail = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local leases_key = P .. "l:" .. worker
local raw = knows(worker) and redis.call("HGET", leases_key, id)
if not raw then
  return -1
end
redis.call("ZADD", P .. "workers", now, worker)
local run, token, priority, spider, domain, scope, entry, hopped, answer, start, spacing = cmsgpack.unpack(raw)
if hopped == fingerprint then
  return answer -- the same call again
end
local crawl = crawl_of(token)
if not crawl or crawl.run ~= run or ended(crawl, spider) then
  answer = 2 -- settled as forwarded, it will be counted as what ended the crawl
elseif not mark_seen(crawl, fingerprint) then
  answer = 0
else
  grow_seen(crawl)
  entry = with_tail(entry, tail)
  local policy = policy_of(domain)
  local budgets = budgets_of(policy, crawl, domain)
  local record = record_of(scope)
  local hits = free_hits(record, policy, budgets, 1)
  if not policy.off and not policy.drops and block_of(domain)[1] <= now and hits.starts[1] and hits.starts[1] <= now then
    charge(scope, budgets, hits, 1)
    answer = 1
    local home = crawl.pool .. "|" .. spider
    local _, head = head_of(home, domain)
    if head then
      place(home, domain, band_of(head))
    end
  else
    answer = 2
  end
end
redis.call("HSET", leases_key, id,
  cmsgpack.pack(run, token, priority, spider, domain, scope, entry, fingerprint, answer, start, spacing))
write_all()
return answer
