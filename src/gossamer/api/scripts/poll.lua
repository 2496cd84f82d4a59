-- Take an answer. Where there is none yet, take over a request whose owner is dead.
-- KEYS  1 the answers under a poll id: a list
-- ARGV  1 ms without a call after which an owner counts as dead
-- Returns {1, answer}, {2, id, request} for a request that the caller now owns, or {0}.
-- Fixed, as in the other scripts here: the keys, which processes of two versions share.
-- Beside KEYS[1]: `:asked` (hash: id -> request) and `:owner:<id>`.
local answer = redis.call("LPOP", KEYS[1])
if answer then
  return { 1, answer }
end
local requests = redis.call("HGETALL", KEYS[1] .. ":asked")
for at = 1, #requests, 2 do
  if redis.call("SET", KEYS[1] .. ":owner:" .. requests[at], "", "PX", ARGV[1], "NX") then
    return { 2, requests[at], requests[at + 1] }
  end
end
return { 0 }
