#!lua flags=allow-oom
-- The records of many crawls.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 kind: h (home record), c (counters) or d (shares of domains)  4 most fields of each
--       5... tokens
-- Returns of each { field, value, ... }; of a record with more fields, that many or a few more
-- Touches c:{token}, clock, d:{token}, h:{token}
-- include shard
local keys = { h = BASE .. "h:", c = BASE .. "c:", d = BASE .. "d:" }
local kind, most, answer = ARGV[3], tonumber(ARGV[4]), {}
for i = 5, #ARGV do
  local key = keys[kind] .. ARGV[i]
  local row
  if kind ~= "d" or redis.call("HLEN", key) <= most then
    row = redis.call("HGETALL", key)
  else
    local cursor, is_known = "0", {}
    row = {}
    repeat
      local reply = redis.call("HSCAN", key, cursor, "COUNT", most)
      cursor = reply[1]
      for k = 1, #reply[2], 2 do
        local field, value = reply[2][k], reply[2][k + 1]
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
