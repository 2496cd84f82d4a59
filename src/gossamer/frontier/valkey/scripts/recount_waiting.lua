#!lua flags=allow-oom
-- Count again how many requests wait for each group of workers and for each application, from the counters of all
-- crawls of the shard. Only a server that lost a part of its writes leaves anything to correct. (Group:
-- "<pool>|<spider>". Token: 16 characters that stand for a crawl.)
-- Must hold: all crawls are counted in one call, because their counters and these change together.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3... tokens of all crawls of the shard
-- Returns numbers that were wrong
-- Touches (see keys.py) app:{appid}, backlog, c:{token}, clock
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include crawls
local counts = { [BASE .. "backlog"] = {} } -- by key of a hash, then field

-- Adds to the count of a field.
local function add(key, field, count)
  counts[key] = counts[key] or {}
  counts[key][field] = (counts[key][field] or 0) + count
end

for i = 3, #ARGV do
  local crawl = crawl_of(ARGV[i])
  local row = crawl and redis.call("HGETALL", crawl.key) or {}
  for k = 1, #row, 2 do
    local kind, spider = string.match(row[k], "^([ql]):(.*)$")
    if kind == "q" then
      add(BASE .. "backlog", crawl.pool .. "|" .. spider, row[k + 1])
    end
    if kind then
      add(BASE .. "app:" .. crawl.app, spider, row[k + 1])
    end
  end
end
local corrected = 0
for key, fields in pairs(counts) do
  local row = redis.call("HGETALL", key)
  for k = 1, #row, 2 do
    add(key, row[k], 0)
    fields[row[k]] = { fields[row[k]], tonumber(row[k + 1]) }
  end
  for field, count in pairs(fields) do
    local wanted, stored = count, 0
    if type(count) == "table" then wanted, stored = count[1], count[2] end
    if wanted ~= stored then
      corrected = corrected + 1
      if wanted == 0 then redis.call("HDEL", key, field) else redis.call("HSET", key, field, wanted) end
    end
  end
end
return corrected
