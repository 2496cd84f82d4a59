-- How a crawl's run is joined or begun, on its home shard.
-- include ends
-- include known

-- Arguments and answer are those of `open`; `expiries`: spider, epoch ms (0: never), ... that a submission asks for.
local function open_run(token, descriptor, fresh, touch, expected, expiries)
  local key = P .. "h:" .. token
  local row = redis.call("HMGET", key, "state", "run", "gen", "shards", "crawl", "fresh", "version")
  local state, run, gen = row[1], tonumber(row[2] or 0), tonumber(row[3] or 0)
  if state == "stopped" or state == "expired" then
    return { "refused", state }
  end
  if expected > 0 and (not state or run ~= expected or state ~= "running") then
    return { "refused", state or "unknown" }
  end
  local fields, began = {}, state ~= "running"
  local function set(field, value)
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  if state == "running" then
    if fresh ~= "" and row[6] ~= fresh then
      return { "refused", state }
    end
    descriptor = row[5]
  else
    if state and redis.call("HEXISTS", P .. "halting", token) == 1 then
      return { "halting" }
    end
    if not state or fresh ~= "" then
      gen = math.max(gen + 1, math.floor(now))
    end
    run = run + 1
    if state then
      redis.call("HDEL", key, "ended", "fresh")
      forget_expiries(token)
    end
    -- The shards of a finished run keep what was seen: the new run sweeps them too when it ends.
    set("state", "running")
    set("run", run)
    set("gen", gen)
    set("crawl", descriptor)
    if state or gen ~= math.floor(now) then -- else the generation says it: there are many crawls of one run
      set("started", math.floor(now))
    end
    if fresh ~= "" then
      set("fresh", fresh)
    end
    note_crawl(token, descriptor)
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
    set("shards", shards)
    set("version", version)
  end
  if #fields > 0 then
    redis.call("HSET", key, unpack(fields))
  end
  -- A part expires only as long as everything that was ever submitted for it does.
  for k = 1, #expiries, 2 do
    local spider, at = expiries[k], tonumber(expiries[k + 1])
    if began and at > 0 or not began and redis.call("HEXISTS", key, "x:" .. spider) == 1 then
      expire_at(token, spider, at)
    end
  end
  local reply = { "ok", run, gen, version, descriptor }
  if state then
    for _, field in ipairs(redis.call("HKEYS", key)) do
      local spider = string.match(field, "^st:(.*)$")
      if spider then
        reply[#reply + 1] = redis.call("HGET", key, field) .. spider
      end
    end
  end
  return reply
end
