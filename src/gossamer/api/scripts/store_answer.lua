-- Store a late answer, so that it can be polled.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 id of the request  2 the answer, or "" where the client has it already  3 ms to keep it
-- Returns 1; 0 where another process has answered the request, or it is not known.
-- Must stay one script: the request is forgotten in the step that stores its answer, so that it is answered once.
-- Fixed: the keys, which processes of two versions share.
-- Beside KEYS[1]: `:asked` (hash: id -> request) and `:owner:<id>`.
redis.call("DEL", KEYS[1] .. ":owner:" .. ARGV[1])
if redis.call("HDEL", KEYS[1] .. ":asked", ARGV[1]) == 0 then
  return 0
end
if ARGV[2] ~= "" then
  redis.call("RPUSH", KEYS[1], ARGV[2])
  redis.call("PEXPIRE", KEYS[1], ARGV[3])
end
return 1
