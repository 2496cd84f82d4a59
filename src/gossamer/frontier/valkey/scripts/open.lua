#!lua
-- Join a crawl's run, or begin the next one; note which shards it is about to touch. On the crawl's home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 crawl (opaque)  5 fresh: 1 or 0  6 shards about to be touched, "3,5", or ""
--       7 run expected, or 0 for whatever is running
-- Returns { "refused", state } or { state before: "new" | "running" | "finished", run, generation, crawl, spiders stopped ... }
-- include common
local token, descriptor, fresh, touch, expected = ARGV[3], ARGV[4], ARGV[5] == "1", ARGV[6], tonumber(ARGV[7])
local key = P .. "h:" .. token
local row = redis.call("HMGET", key, "state", "run", "gen", "shards", "crawl")
local state, run, gen = row[1], tonumber(row[2] or 0), tonumber(row[3] or 0)
if state == "stopped" or state == "expired" then
  return { "refused", state }
end
if expected > 0 and (not state or run ~= expected or state ~= "running") then
  return { "refused", state or "unknown" }
end
local before = state or "new"
if state ~= "running" then
  if not state then
    gen = 1
  elseif fresh then
    gen = gen + 1
  end
  run = run + 1
  -- The shards of a finished run keep what was seen: the new run sweeps them too when it ends.
  redis.call("HSET", key, "state", "running", "run", run, "gen", gen, "crawl", descriptor, "started", now)
  redis.call("HDEL", key, "ended")
  redis.call("ZREM", P .. "ending", token)
else
  descriptor = row[5]
end
local shards = row[4] or ""
if touch ~= "" then
  for shard in string.gmatch(touch, "[^,]+") do
    if not string.find("," .. shards .. ",", "," .. shard .. ",", 1, true) then
      shards = shards == "" and shard or (shards .. "," .. shard)
    end
  end
  redis.call("HSET", key, "shards", shards)
  redis.call("HINCRBY", key, "version", 1)
end
local reply = { before, run, gen, descriptor }
for _, field in ipairs(redis.call("HKEYS", key)) do
  local spider = string.match(field, "^st:(.*)$")
  if spider then
    reply[#reply + 1] = spider
  end
end
return reply
