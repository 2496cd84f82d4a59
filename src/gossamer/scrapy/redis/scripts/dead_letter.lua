-- What cannot be used, with the reason, where a person finds it; it is no longer under way.
-- KEYS: the dead-letter key, the processing key    ARGV: its life in seconds, the entry, the letter
if redis.call("ZREM", KEYS[2], ARGV[2]) == 1 then
  redis.call("RPUSH", KEYS[1], ARGV[3])
  redis.call("EXPIRE", KEYS[1], ARGV[1])
end
return 1
