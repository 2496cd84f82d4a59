-- How a submission joins a crawl's run (one life of the crawl, from its first request to its end) or begins the next
-- one, on the crawl's home shard, which decides when a run ends. Part: what one spider does of a run. Token: 16
-- characters that stand for a crawl. Generation: number of the set of URLs that the crawl has seen.
-- Must hold: the fields of the home record (keys.py lists them); the shards are noted here before they are touched, so
-- that the process that ends the run asks all of them; the version grows whenever shards are noted, or a run could be
-- finished while requests are added to it; a generation never falls.
-- BASE, INF, now and wall are in shard.lua; other names that are not declared below, in these files or their includes:
-- include expiries
-- include running

-- Returns how the parts of all these spiders have ended: "expired" where all of them expired, else "stopped"; nil where
-- one has not ended. `expiries`: spider, epoch ms, ...
local function parts_end_reason(key, expiries)
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

-- Returns when the last run ended, in the shard's time.
local function end_of_last_run(key)
  local over, ended = unpack(redis.call("HMGET", key, "over", "ended"))
  return tonumber(over or ended or 0)
end

local listed_apps = {}

-- Lists a crawl under its application.
local function list_crawl(token, packed_crawl)
  local appid = app_of(packed_crawl)
  redis.call("SADD", BASE .. "crawls:" .. appid, token)
  if not listed_apps[appid] then
    redis.call("ZADD", BASE .. "apps", 0, appid)
    listed_apps[appid] = true
  end
end

-- Notes until when a submission wants its spider's part of the run to go on (epoch ms; 0: for ever). The latest counts.
local function set_expiry(token, spider, packed_crawl, at)
  local key, field = BASE .. "h:" .. token, "x:" .. spider
  local known = tonumber(redis.call("HGET", key, field) or -1)
  if known == 0 or (at > 0 and known >= at) then
    return
  end
  if known < 0 and redis.call("HEXISTS", key, "st:" .. spider) == 0 then
    redis.call("SADD", running_key(app_of(packed_crawl), spider), token)
  end
  redis.call("HSET", key, field, string.format("%.0f", at))
  if at > 0 then
    redis.call("ZADD", BASE .. "expiries", string.format("%.0f", at), token .. "|" .. spider)
  elseif known > 0 then
    redis.call("ZREM", BASE .. "expiries", token .. "|" .. spider)
  end
end

-- Adds the shards about to be touched ("3,5") to those that the crawl has touched.
local function add_shards(touched, about_to_touch)
  for shard in string.gmatch(about_to_touch, "[^,]+") do
    if not string.find("," .. touched .. ",", "," .. shard .. ",", 1, true) then
      touched = touched == "" and shard or (touched .. "," .. shard)
    end
  end
  return touched
end

-- Returns the letter and name of each spider whose part has ended: "slink", ...
local function ended_parts(key)
  local found = {}
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local spider = string.match(field, "^st:(.*)$")
    if spider then
      found[#found + 1] = redis.call("HGET", key, field) .. spider
    end
  end
  return found
end

-- Changes the home record for the next run, which begins now. `home`: what the record says, changed here. Returns the
-- fields to set.
local function begin_next_run(token, home, fresh)
  local fields = {}
  if not home.state or fresh then -- a new seen-set: its number is the time, or one more than the last number
    home.generation = math.max(home.generation + 1, math.floor(now))
  end
  home.run = home.run + 1
  if home.state then
    redis.call("HDEL", home.key, "ended", "over")
    forget_expiries(token)
  end
  -- The shards of a finished run keep what was seen; the new run removes their keys, too, when it ends.
  fields = { "state", "running", "run", home.run, "gen", home.generation, "crawl", home.packed_crawl }
  if home.state or home.generation ~= math.floor(wall) then -- else the generation tells: many crawls have one run
    fields[#fields + 1], fields[#fields + 2] = "started", math.floor(wall)
  end
  list_crawl(token, home.packed_crawl)
  redis.call("ZREM", BASE .. "ending", token)
  redis.call("ZADD", BASE .. "opened", now, token)
  return fields
end

-- Reads the home record. `state`: running, finished, stopped or expired; false where the shard knows no such crawl.
local function read_home(token)
  local key = BASE .. "h:" .. token
  local state, run, generation, shards, packed_crawl, version = unpack(
    redis.call("HMGET", key, "state", "run", "gen", "shards", "crawl", "version"))
  return {
    key = key, state = state, run = tonumber(run or 0), generation = tonumber(generation or 0), shards = shards or "",
    packed_crawl = packed_crawl, version = tonumber(version or 0), generation_text = generation,
  }
end

-- Returns why a submission may not join or begin a run, as `open_run` does; nil where it may.
local function refusal_of(home, expected)
  if home.state == "stopped" or home.state == "expired" then
    return { "refused", home.state }
  end
  if expected > 0 and (home.run ~= expected or home.state ~= "running") then
    return { "refused", home.state or "unknown" }
  end
end

-- Joins or begins a run. `request`: { token, packed_crawl, name, fresh, shards, expected, age, expiries }, as the
-- arguments of `open_run`, which returns the same; `expiries`: spider, epoch ms (0: never), ...
-- The cases, in this order:
--   1. The crawl is stopped or expired, or the last run is not the one that is expected: refused.
--   2. A repeated request for a fresh run that has begun: it joins that run or, where that is over, gets "finished".
--   3. Finished, and the parts of all these spiders have ended: refused, unless a fresh run is to begin what expired.
--   4. Finished since the caller began, `age` ms ago: "finished", the caller belongs to that run.
--   5. Running: joined; a fresh run is refused.
--   6. Else the next run begins, once a stop that is being carried out has ended.
local function join_run(request)
  local token, expiries, fresh, age = request.token, request.expiries, request.fresh, request.age
  local home = read_home(token)
  local state, key = home.state, home.key
  local refusal = refusal_of(home, request.expected)
  if refusal then
    return refusal
  end
  local named = BASE .. "fresh:" .. request.name
  if fresh and state and redis.call("GET", named) == home.generation_text then -- repeated: the fresh run has begun
    fresh = false
    if state == "finished" then
      age = INF
    end
  end
  -- A run for parts that have ended would accept nothing. A fresh one begins anew what has expired.
  local reason = state == "finished" and parts_end_reason(key, expiries)
  if reason and (reason ~= "expired" or not fresh) then
    return { "refused", reason, "part" }
  end
  if state == "finished" and age >= 0 and now - end_of_last_run(key) <= age then
    return { "finished", home.run, home.generation, home.version, home.packed_crawl }
  end
  if fresh and state == "running" then
    return { "refused", state }
  end
  local fields = {}
  if state ~= "running" then
    if state and redis.call("HEXISTS", BASE .. "stopping", token) == 1 then
      return { "stopping" }
    end
    if reason then
      for k = 1, #expiries, 2 do
        redis.call("HDEL", key, "st:" .. expiries[k])
      end
    end
    home.packed_crawl = request.packed_crawl
    fields = begin_next_run(token, home, fresh)
  end
  if request.shards ~= "" then
    home.version = home.version + 1
    local n = #fields
    fields[n + 1], fields[n + 2] = "shards", add_shards(home.shards, request.shards)
    fields[n + 3], fields[n + 4] = "version", home.version
  end
  if #fields > 0 then
    redis.call("HSET", key, unpack(fields))
  end
  if request.name ~= "" then
    redis.call("SET", named, string.format("%.0f", home.generation), "PX", 3600000)
  end
  if state ~= "running" then
    redis.call("SADD", running_key(app_of(home.packed_crawl), ""), token)
  end
  for k = 1, #expiries, 2 do
    set_expiry(token, expiries[k], home.packed_crawl, tonumber(expiries[k + 1]))
  end
  return { "ok", home.run, home.generation, home.version, home.packed_crawl, unpack(state and ended_parts(key) or {}) }
end
