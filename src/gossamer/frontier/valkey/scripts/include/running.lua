-- Lists of an application's running crawls, on the crawls' home shard: of each spider that something was submitted for,
-- and ("") of all of them.

-- Returns the key of one of these lists. It is stored: fixed.
local function running_key(appid, spider)
  return BASE .. "running:" .. spider .. "|" .. appid
end

-- Returns the application of a crawl as the client packed it (msgpack: appid, crawlid, ...: see codec.py).
local function app_of(packed_crawl)
  return (cmsgpack.unpack(packed_crawl))[1]
end
