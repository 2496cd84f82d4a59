-- Store a request whose answer is late, so that another process can answer it when its owner dies; or, repeated, keep
-- it owned.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 id of the request  2 the request, or "" where it is stored already  3 ms to keep it
--       4 ms without a call after which its owner counts as dead
-- Returns 1; 0 where the request was answered or is not known.
-- Fixed: the keys, which processes of two versions share.
-- Beside KEYS[1]: `:asked` (hash: id -> request) and `:owner:<id>` (while its owner lives).
local requests = KEYS[1] .. ":asked"
if ARGV[2] ~= "" then
  redis.call("HSET", requests, ARGV[1], ARGV[2])
  redis.call("PEXPIRE", requests, ARGV[3])
elseif redis.call("HEXISTS", requests, ARGV[1]) == 0 then
  return 0
end
redis.call("SET", KEYS[1] .. ":owner:" .. ARGV[1], "", "PX", ARGV[4])
return 1
