-- Which crawls there are: by application, those of the pool `shared`. On a crawl's home shard, as long as its record.

local noted_apps = {}

-- `blob`: the crawl as the client packed it (msgpack: appid, crawlid, pool, ...).
local function note_crawl(token, blob)
  local crawl = cmsgpack.unpack(blob)
  if crawl[3] == "shared" then
    redis.call("SADD", P .. "crawls:" .. crawl[1], token)
    if not noted_apps[crawl[1]] then
      redis.call("ZADD", P .. "apps", 0, crawl[1])
      noted_apps[crawl[1]] = true
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
