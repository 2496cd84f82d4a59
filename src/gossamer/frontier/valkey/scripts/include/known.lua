-- Which crawls there are, by application. On a crawl's home shard, as long as its record.

local noted_apps = {}

-- `blob`: the crawl as the client packed it (msgpack: appid, crawlid, ...).
local function note_crawl(token, blob)
  local appid = cmsgpack.unpack(blob)[1]
  redis.call("SADD", P .. "crawls:" .. appid, token)
  if not noted_apps[appid] then
    redis.call("ZADD", P .. "apps", 0, appid)
    noted_apps[appid] = true
  end
end

-- The crawls of an application that run: for a spider that something was submitted for, or ("") all of them.
local function running_key(appid, spider)
  return P .. "running:" .. spider .. "|" .. appid
end

local function list_running(token, spider)
  local appid = cmsgpack.unpack(redis.call("HGET", P .. "h:" .. token, "crawl"))[1]
  redis.call("SADD", running_key(appid, spider), token)
end

-- A crawl runs no longer, or one spider's part of it. `spider` nil: all of it.
local function unlist_running(token, spider)
  local key = P .. "h:" .. token
  local blob = redis.call("HGET", key, "crawl")
  if not blob then
    return
  end
  local appid = cmsgpack.unpack(blob)[1]
  if spider then
    redis.call("SREM", running_key(appid, spider), token)
    return
  end
  redis.call("SREM", running_key(appid, ""), token)
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local submitted = string.match(field, "^x:(.*)$")
    if submitted then
      redis.call("SREM", running_key(appid, submitted), token)
    end
  end
end

local function unnote_crawl(token, blob)
  local appid = cmsgpack.unpack(blob)[1]
  local key = P .. "crawls:" .. appid
  if redis.call("SREM", key, token) == 1 and redis.call("EXISTS", key) == 0 then
    redis.call("ZREM", P .. "apps", appid)
  end
end
