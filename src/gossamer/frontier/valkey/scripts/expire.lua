#!lua flags=allow-oom
-- Mark as expired what is due to, of the crawls whose home this shard is.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 most parts a call  4 how long a mark is kept, ms  5 retention ms
-- Returns { parts that expired, 1 when there may be more, tokens whose shards are to be halted ... }
-- include common
-- include ends
local most, mark, retention = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local due = redis.call("ZRANGEBYSCORE", P .. "expiries", "-inf", wall, "LIMIT", 0, most)
local count, tokens, noted = 0, {}, {}
for _, member in ipairs(due) do
  local token, spider = string.sub(member, 1, 16), string.sub(member, 18)
  local row = redis.call("HMGET", P .. "h:" .. token, "state", "st:" .. spider)
  redis.call("ZREM", P .. "expiries", member)
  redis.call("HDEL", P .. "h:" .. token, "x:" .. spider)
  if row[1] == "running" and not row[2] then
    end_early(token, "expired", spider, mark, retention)
    count = count + 1
    if not noted[token] then
      noted[token] = true
      tokens[#tokens + 1] = token
    end
  end
end
return { count, #due == most and 1 or 0, unpack(tokens) }
