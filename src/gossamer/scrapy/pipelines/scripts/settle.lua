-- Cache what a look-up has given.
-- KEYS  1 the answer or the failure  2 the process that makes the look-up
-- ARGV  1 name of the process  2 JSON of the answer, or text of the failure  3 its life, ms
-- Returns 1. May be repeated.
redis.call("SET", KEYS[1], ARGV[2], "PX", ARGV[3])
if redis.call("GET", KEYS[2]) == ARGV[1] then
  redis.call("DEL", KEYS[2])
end
return 1
