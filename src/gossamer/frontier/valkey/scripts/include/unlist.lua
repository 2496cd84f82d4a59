-- Crawls, or spiders' parts of them, that run no longer. Must hold: this comes before a crawl's home record goes, which
-- says where it is listed. (Token: 16 characters that stand for a crawl.)
-- BASE is in shard.lua; other names that are not declared below, in these files or their includes:
-- include running

-- Takes one spider's part of a crawl from the lists of those that run.
local function unlist_part(token, spider)
  local packed_crawl = redis.call("HGET", BASE .. "h:" .. token, "crawl")
  if packed_crawl then
    redis.call("SREM", running_key(app_of(packed_crawl), spider), token)
  end
end

-- Takes a crawl from the lists of those that run.
local function unlist_running(token)
  local key = BASE .. "h:" .. token
  local packed_crawl = redis.call("HGET", key, "crawl")
  if not packed_crawl then
    return
  end
  local appid = app_of(packed_crawl)
  redis.call("SREM", running_key(appid, ""), token)
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local submitted = string.match(field, "^x:(.*)$")
    if submitted then
      redis.call("SREM", running_key(appid, submitted), token)
    end
  end
end
