-- Keep a request whose answer is late, so that another process can answer it when this one dies.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 the request's own id   2 the request, '' where it is kept already   3 milliseconds to keep it
--       4 milliseconds after which its owner counts as dead
-- Beside KEYS[1]: `:asked` (hash: id -> request), `:owner:<id>` (while its owner lives).
local asked = KEYS[1] .. ':asked'
if ARGV[2] ~= '' then
  redis.call('HSET', asked, ARGV[1], ARGV[2])
  redis.call('PEXPIRE', asked, ARGV[3])
elseif redis.call('HEXISTS', asked, ARGV[1]) == 0 then
  return 0
end
redis.call('SET', KEYS[1] .. ':owner:' .. ARGV[1], '', 'PX', ARGV[4])
return 1
