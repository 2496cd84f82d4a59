#!lua flags=allow-oom
-- The records of many crawls.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 kind: h (home record), c (counters) or d (shares of domains)  4 most fields of each
--       5... tokens
-- Returns of each { field, value, ... }; of a record with more fields, that many or a few more
-- include common
local most, answer = tonumber(ARGV[4]), {}
for i = 5, #ARGV do
  local key = P .. ARGV[3] .. ":" .. ARGV[i]
  local row
  if ARGV[3] ~= "d" or redis.call("HLEN", key) <= most then
    row = redis.call("HGETALL", key)
  else
    local cursor, known = "0", {}
    row = {}
    repeat
      local reply = redis.call("HSCAN", key, cursor, "COUNT", most)
      cursor = reply[1]
      for k = 1, #reply[2], 2 do
        if not known[reply[2][k]] then
          known[reply[2][k]] = true
          row[#row + 1], row[#row + 2] = reply[2][k], reply[2][k + 1]
        end
      end
    until cursor == "0" or #row >= 2 * most
  end
  answer[#answer + 1] = row
end
return answer
