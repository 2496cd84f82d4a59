#!lua flags=allow-oom
-- Return the records of many crawls. (Token: 16 characters that stand for a crawl. Home record: its state and run.
-- Shares: by domain, its pages and queues there.)
-- The limit of fields holds for shares only. Other records must come whole, because queries.py adds up their fields.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 kind: h (home record), c (counters) or d (shares of domains)
--       4 most fields of each  5... tokens
-- Returns of each { field, value, ... }; of a record with more fields, that many or a few more
-- Touches (see keys.py) c:{token}, clock, d:{token}, h:{token}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
local keys = { h = BASE .. "h:", c = BASE .. "c:", d = BASE .. "d:" }
local kind, most, answer = ARGV[3], tonumber(ARGV[4]), {}
for i = 5, #ARGV do
  local key = keys[kind] .. ARGV[i]
  local row
  if kind ~= "d" or redis.call("HLEN", key) <= most then
    row = redis.call("HGETALL", key)
  else -- some of many shares
    local cursor, is_known = "0", {}
    row = {}
    repeat
      local found
      cursor, found = unpack(redis.call("HSCAN", key, cursor, "COUNT", most))
      for k = 1, #found, 2 do
        local field, value = found[k], found[k + 1]
        if not is_known[field] then -- a scan may return a field twice
          is_known[field] = true
          row[#row + 1], row[#row + 2] = field, value
        end
      end
    until cursor == "0" or #row >= 2 * most
  end
  answer[#answer + 1] = row
end
return answer
