-- Times at which spiders' parts of a crawl expire, on the crawl's home shard. Must hold: each is in the home record
-- (x:<spider>) and, unless it is 0 (never), in `expiries`; both change together. Token: 16 characters that stand for a
-- crawl.

-- Forgets all of them.
local function forget_expiries(token)
  local key = BASE .. "h:" .. token
  for _, field in ipairs(redis.call("HKEYS", key)) do
    local spider = string.match(field, "^x:(.*)$")
    if spider then
      redis.call("HDEL", key, field)
      redis.call("ZREM", BASE .. "expiries", token .. "|" .. spider)
    end
  end
end
