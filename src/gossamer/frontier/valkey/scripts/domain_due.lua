#!lua flags=allow-oom
-- Return when a domain may be leased from next, and until when it is blocked. Only reads.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 pool  4 spider  5 domain
-- Returns { blocked until ms or "", due ms or "" (unknown, or a request in flight must end first),
--         ms by which the server's clock is ahead of the shard's time, 1 if it is blocked for a rest after a refusal,
--         else 0 }, the first two by the server's clock
-- Touches (see keys.py) a:{pool}|{spider}|{domain}, c:{token}, clock, n, policy, w:{scope}, wait:{pool}, x:{domain}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include ready
local group, domain = ARGV[3] .. "|" .. ARGV[4], ARGV[5]
local head = head_of(group, domain)
local block = block_of(domain)
local blocked = block[BLOCK_ENDS]
local due = head and due_of(group, domain, "", head) or INF
local ahead = wall - now
return { blocked > now and string.format("%.3f", blocked + ahead) or "",
  due < INF and string.format("%.3f", due + ahead) or "", string.format("%.3f", ahead), block[IS_REST] or 0 }
