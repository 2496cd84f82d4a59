-- The end of a run, in the record of its home shard.

-- Writes how a run ended. "ended" is for people; "over" is the same in the shard's time, written where that is another.
local function write_end(key, state)
  redis.call("HSET", key, "state", state, "ended", wall)
  if now ~= wall then
    redis.call("HSET", key, "over", string.format("%.3f", now))
  end
end
