-- The end of a run (one life of a crawl), in the record of its home shard. Fixed: the names of the fields, which are
-- stored (keys.py).

-- Writes how a run ended. "ended" is for people; "over" is the same in the shard's time, written where that is another.
local function write_end(key, state)
  redis.call("HSET", key, "state", state, "ended", wall)
  if now ~= wall then
    redis.call("HSET", key, "over", string.format("%.3f", now))
  end
end
