-- How a crawl's run is joined or begun, on its home shard.
-- include ends
-- include known

-- How the parts of all these spiders have ended: "stopped", "expired" where all expired, nil where one has not ended.
-- `expiries`: spider, epoch ms, ...
local function parts_ended(key, expiries)
  local reason
  for k = 1, #expiries, 2 do
    local letter = redis.call("HGET", key, "st:" .. expiries[k])
    if not letter then
      return nil
    end
    reason = (letter == "e" and reason ~= "stopped") and "expired" or "stopped"
  end
  return reason
end

-- Arguments and answer are those of `open`; `expiries`: spider, epoch ms (0: never), ... that a submission asks for.
local function open_run(token, descriptor, name, fresh, touch, expected, age, expiries)
  local key = P .. "h:" .. token
  local row = redis.call("HMGET", key, "state", "run", "gen", "shards", "crawl", "version")
  local state, run, gen = row[1], tonumber(row[2] or 0), tonumber(row[3] or 0)
  if state == "stopped" or state == "expired" then
    return { "refused", state }
  end
  if expected > 0 and (not state or run ~= expected or state ~= "running") then
    return { "refused", state or "unknown" }
  end
  local named = P .. "fresh:" .. name
  if fresh and state and redis.call("GET", named) == row[3] then -- it is repeated: what it asked for has begun
    fresh = false
    if state == "finished" then
      age = INF
    end
  end
  -- A run for parts that have ended would take nothing in. A fresh one begins anew what has expired.
  local reason = state == "finished" and parts_ended(key, expiries)
  if reason and (reason ~= "expired" or not fresh) then
    return { "refused", reason, "part" }
  end
  if state == "finished" and age >= 0 and now - ended_at(key) <= age then
    return { "finished", run, gen, tonumber(row[6] or 0), row[5] }
  end
  local fields = {}
  local function set(field, value)
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  if state == "running" then
    if fresh then
      return { "refused", state }
    end
    descriptor = row[5]
  else
    if state and redis.call("HEXISTS", P .. "halting", token) == 1 then
      return { "halting" }
    end
    if not state or fresh then
      gen = math.max(gen + 1, math.floor(now))
    end
    if reason then
      for k = 1, #expiries, 2 do
        redis.call("HDEL", key, "st:" .. expiries[k])
      end
    end
    run = run + 1
    if state then
      redis.call("HDEL", key, "ended", "over")
      forget_expiries(token)
    end
    -- The shards of a finished run keep what was seen: the new run sweeps them too when it ends.
    set("state", "running")
    set("run", run)
    set("gen", gen)
    set("crawl", descriptor)
    if state or gen ~= math.floor(wall) then -- else the generation says it: there are many crawls of one run
      set("started", math.floor(wall))
    end
    note_crawl(token, descriptor)
    redis.call("ZREM", P .. "ending", token)
    redis.call("ZADD", P .. "opened", now, token)
  end
  local shards, version = row[4] or "", tonumber(row[6] or 0)
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
  if name ~= "" then
    redis.call("SET", named, string.format("%.0f", gen), "PX", 3600000)
  end
  if row[1] ~= "running" then
    list_running(token, "")
  end
  for k = 1, #expiries, 2 do
    expire_at(token, expiries[k], tonumber(expiries[k + 1]))
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
