-- Take messages for the time of a lease. Messages whose lease has expired come first.
-- KEYS  1 message key  2 processing key: entries by the time at which their lease ends
-- ARGV  1 limit  2 lease in ms  3 unique token of this call
-- Returns the entries: token ":" number ":" score "|" message.
local kind = redis.call("TYPE", KEYS[1]).ok
local most = tonumber(ARGV[1])
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, most)
local left = most - #taken
local found, scores = {}, {}
if left > 0 then
  if kind == "list" then
    found = redis.call("LRANGE", KEYS[1], 0, left - 1)
    redis.call("LTRIM", KEYS[1], left, -1)
  elseif kind == "set" then
    found = redis.call("SPOP", KEYS[1], left)
  elseif kind == "zset" then
    local pairs_ = redis.call("ZREVRANGE", KEYS[1], 0, left - 1, "WITHSCORES")
    for i = 1, #pairs_, 2 do
      found[#found + 1], scores[#scores + 1] = pairs_[i], pairs_[i + 1]
    end
    redis.call("ZREMRANGEBYRANK", KEYS[1], -left, -1)
  elseif kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. kind)
  end
end
for i, message in ipairs(found) do
  taken[#taken + 1] = ARGV[3] .. ":" .. i .. ":" .. (scores[i] or "") .. "|" .. message
end
for _, entry in ipairs(taken) do
  redis.call("ZADD", KEYS[2], now + ARGV[2], entry)
end
return taken
