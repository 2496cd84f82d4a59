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

local function unnote_crawl(token, blob)
  local appid = cmsgpack.unpack(blob)[1]
  local key = P .. "crawls:" .. appid
  if redis.call("SREM", key, token) == 1 and redis.call("EXISTS", key) == 0 then
    redis.call("ZREM", P .. "apps", appid)
  end
end
