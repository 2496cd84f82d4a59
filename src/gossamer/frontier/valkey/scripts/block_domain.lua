#!lua flags=allow-oom
-- Block a domain for a while (Retry-After), or note what robots.txt asks between two hits.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 domain  4 blocked for ms, or ""  5 crawl delay ms, or ""  6 life of the crawl delay, ms
-- Returns 1
-- include common
-- include throttle
-- include queues
local domain = ARGV[3]
local block = { unpack(block_of(domain)) }
blocks[domain] = block
local moved = false
if ARGV[4] ~= "" and now + tonumber(ARGV[4]) > block[1] then
  block[1] = now + tonumber(ARGV[4])
  moved = true
end
if ARGV[5] ~= "" and tonumber(ARGV[5]) ~= block[2] then
  block[2] = tonumber(ARGV[5])
  moved = true
end
local key = P .. "x:" .. domain
local life = math.max(math.ceil(block[1] - now), block[2] > 0 and tonumber(ARGV[6]) or 0)
if life > 0 then
  -- It lives a day longer: a server whose clock is set forward would forget it too early.
  redis.call("SET", key, cmsgpack.pack(block), "PX", life + 86400000)
else
  redis.call("DEL", key)
end
-- A hit from before the delay was known counts for it, too.
if block[2] > 0 then
  keep_hits(domain, block[2])
end
if moved then
  for _, home in ipairs(redis.call("ZRANGE", P .. "homes", 0, -1)) do
    local _, priority = head_of(home, domain)
    if priority then
      place(home, domain, band_of(priority))
    end
  end
end
write_all()
return 1
