-- Take start messages for a lease: no other process gets them before the lease is over. Messages whose lease is over
-- come first.
-- KEYS  1 the start key: a list, set or zset
--       2 the entries that are being processed: a zset
-- ARGV  1 maximum number of messages
--       2 lease in ms
--       3 a unique name of this call, so that equal messages become different entries
-- Returns the entries: name ":" number ":" score "|" message. An entry whose lease was over keeps the name of the call
-- that first took it. TakenMessage in feeder.py reads this form, and entries are stored in it: fixed. Taking must stay
-- one script, so that a message is always in one of the two keys.
local kind = redis.call("TYPE", KEYS[1]).ok
local time = redis.call("TIME")
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The score in KEYS[2] is the end of the lease, ms since the epoch.
local taken = redis.call("ZRANGEBYSCORE", KEYS[2], "-inf", now, "LIMIT", 0, tonumber(ARGV[1]))
local wanted = tonumber(ARGV[1]) - #taken
local messages, scores = {}, {}
if wanted > 0 then
  if kind == "list" then
    messages = redis.call("LRANGE", KEYS[1], 0, wanted - 1)
    redis.call("LTRIM", KEYS[1], wanted, -1)
  elseif kind == "set" then
    messages = redis.call("SPOP", KEYS[1], wanted)
  elseif kind == "zset" then
    local row = redis.call("ZREVRANGE", KEYS[1], 0, wanted - 1, "WITHSCORES")
    for i = 1, #row, 2 do
      messages[#messages + 1], scores[#scores + 1] = row[i], row[i + 1]
    end
    redis.call("ZREMRANGEBYRANK", KEYS[1], -wanted, -1)
  elseif kind ~= "none" then
    return redis.error_reply("WRONGTYPE " .. kind)
  end
end
for i, message in ipairs(messages) do
  taken[#taken + 1] = ARGV[3] .. ":" .. i .. ":" .. (scores[i] or "") .. "|" .. message
end
for _, entry in ipairs(taken) do
  redis.call("ZADD", KEYS[2], now + ARGV[2], entry)
end
return taken
