-- Move an invalid message from the processing key to the dead letters.
-- KEYS  1 dead-letter key  2 processing key
-- ARGV  1 seconds to keep the dead-letter key  2 entry in the processing key  3 letter: JSON with the reason
if redis.call("ZREM", KEYS[2], ARGV[2]) == 1 then
  redis.call("RPUSH", KEYS[1], ARGV[3])
  redis.call("EXPIRE", KEYS[1], ARGV[1])
end
return 1
