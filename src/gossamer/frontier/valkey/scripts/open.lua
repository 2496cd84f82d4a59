#!lua
-- Join a crawl's run, or begin the next one; note which shards it is about to touch. On the crawl's home shard.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 token  4 crawl (msgpack: appid, crawlid, pool, ...)  5 fresh: "", or a name under which a fresh run is begun only once
--       6 shards about to be touched, "3,5", or ""  7 run expected, or 0 for whatever is running
--       then for each spider that something is submitted for: its name, when that expires (epoch ms; 0: never)
-- Returns { "refused", state }, { "halting" } when the last run has to be halted first, or
--         { "ok", run, generation, version, crawl, spiders that ended: "slink" ... }
-- include common
-- include ends
-- include known
local token, descriptor, fresh, touch, expected = ARGV[3], ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7])
local key = P .. "h:" .. token
local row = redis.call("HMGET", key, "state", "run", "gen", "shards", "crawl", "fresh", "version")
local state, run, gen = row[1], tonumber(row[2] or 0), tonumber(row[3] or 0)
if state == "stopped" or state == "expired" then
  return { "refused", state }
end
local began = state ~= "running"
if expected > 0 and (not state or run ~= expected or state ~= "running") then
  return { "refused", state or "unknown" }
end
if state == "running" then
  if fresh ~= "" and row[6] ~= fresh then
    return { "refused", state }
  end
  descriptor = row[5]
else
  if redis.call("HEXISTS", P .. "halting", token) == 1 then
    return { "halting" }
  end
  if not state or fresh ~= "" then
    gen = math.max(gen + 1, math.floor(now))
  end
  run = run + 1
  -- The shards of a finished run keep what was seen: the new run sweeps them too when it ends.
  redis.call("HSET", key, "state", "running", "run", run, "gen", gen, "crawl", descriptor, "started", math.floor(now))
  redis.call("HDEL", key, "ended", "fresh")
  if state then
    forget_expiries(token)
  end
  note_crawl(token, descriptor)
  if fresh ~= "" then
    redis.call("HSET", key, "fresh", fresh)
  end
  redis.call("ZREM", P .. "ending", token)
  redis.call("ZADD", P .. "opened", now, token)
end
local shards, version = row[4] or "", tonumber(row[7] or 0)
if touch ~= "" then
  for shard in string.gmatch(touch, "[^,]+") do
    if not string.find("," .. shards .. ",", "," .. shard .. ",", 1, true) then
      shards = shards == "" and shard or (shards .. "," .. shard)
    end
  end
  version = version + 1
  redis.call("HSET", key, "shards", shards, "version", version)
end
-- A part expires only as long as everything that was ever submitted for it does.
for at = 8, #ARGV, 2 do
  local expires = tonumber(ARGV[at + 1])
  if began and expires > 0 or not began and redis.call("HEXISTS", key, "x:" .. ARGV[at]) == 1 then
    expire_at(token, ARGV[at], expires)
  end
end
local reply = { "ok", run, gen, version, descriptor }
for _, field in ipairs(redis.call("HKEYS", key)) do
  local spider = string.match(field, "^st:(.*)$")
  if spider then
    reply[#reply + 1] = redis.call("HGET", key, field) .. spider
  end
end
return reply
