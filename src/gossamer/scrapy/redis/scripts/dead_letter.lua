-- Move a message that cannot be used to the dead letters, with the reason.
-- KEYS  1 the dead letters: a list  2 the entries that are being processed
-- ARGV  1 life of the dead letters, s  2 the entry  3 the dead letter
-- Returns 1.
if redis.call("ZREM", KEYS[2], ARGV[2]) == 1 then
  redis.call("RPUSH", KEYS[1], ARGV[3])
  redis.call("EXPIRE", KEYS[1], ARGV[1])
end
return 1
