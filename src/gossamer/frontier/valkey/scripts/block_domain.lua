#!lua flags=allow-oom
-- Block a domain for a while (Retry-After, or a rest after a refusal), or note the delay that robots.txt asks for between two hits (fetches). A
-- block is only ever extended; the latest delay counts.
-- Must hold: the stored form { blocked until, delay, 1 if that is a rest }, which budgets.lua reads; hits are kept for the new delay
-- (keep_hits) before domains are placed again, or a hit of just now would not count.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 domain  4 blocked for ms, or ""  5 crawl delay ms, or ""
--       6 life of the crawl delay, ms  7 1: the block is a rest, 0: the site has asked for it
-- Returns 1
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, c:{token}, clock, egresses, groups, n, off:{pool}|{spider},
--         per-egress:{pool}|{spider}, policy, r:{pool}|{spider}|{band}, r:{pool}|{spider}|{band}|{egress}, w:{scope},
--         wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include ready
-- include keep_hits
local DAY = 86400000
local domain = ARGV[3]
local blocked_until, delay, is_rest = unpack(block_of(domain))
local has_changed
if ARGV[4] ~= "" and now + tonumber(ARGV[4]) > blocked_until then
  blocked_until, has_changed = now + tonumber(ARGV[4]), true
  is_rest = ARGV[7] == "1" and 1 or nil
end
if ARGV[5] ~= "" and tonumber(ARGV[5]) ~= delay then
  delay, has_changed = tonumber(ARGV[5]), true
end
blocks[domain] = { blocked_until, delay, is_rest }
local key = BASE .. "x:" .. domain
local life = math.max(math.ceil(blocked_until - now), delay > 0 and tonumber(ARGV[6]) or 0)
if life > 0 then
  -- The key lives a day longer: a server whose clock is set forward would forget it too early.
  redis.call("SET", key, cmsgpack.pack(blocks[domain]), "PX", life + DAY)
else
  redis.call("DEL", key)
end
keep_hits(domain, delay) -- a hit from before the delay was known counts for it, too
if has_changed then
  for _, group in ipairs(list_groups()) do
    update_domain(group, domain)
  end
end
write_all()
return 1
