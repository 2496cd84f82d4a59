-- Add to counters that count by time.
-- KEYS  1 the group: a sorted set of its counters' names by the minute of their last change. Each counter is a hash at
--         this key .. ":" .. name, with the fields m<minute>, q<quarter of an hour>, h<hour> and `lifetime`.
-- ARGV  1 epoch seconds, or "" for the server's clock  2 seconds that an unchanged counter lives  then name, number ...
-- Returns nothing. Buckets that no window needs any more are deleted when a new bucket begins.
-- Fixed: field names and BUCKETS, which are stored, and read by WINDOWS in control/stats.py. To keep more buckets than
-- WINDOWS needs (the third numbers of BUCKETS) is harmless: it only needs memory.
local now = tonumber(ARGV[1]) or tonumber(redis.call("TIME")[1])
local life = ARGV[2]
-- For each size of bucket: the letter of its fields, its seconds, and the number of buckets in the longest window.
local BUCKETS = { { "m", 60, 60 }, { "q", 900, 96 }, { "h", 3600, 168 } }

-- Returns whether no window needs this field any more. One bucket more is kept: a window begins within it.
local function is_old(field)
  for _, bucket in ipairs(BUCKETS) do
    local letter, seconds, kept = unpack(bucket)
    local number = tonumber(field:sub(2))
    if field:sub(1, 1) == letter and number and number < math.floor(now / seconds) - kept then
      return true
    end
  end
  return false
end

for at = 3, #ARGV, 2 do
  local name, number = ARGV[at], tonumber(ARGV[at + 1])
  local key = KEYS[1] .. ":" .. name
  local bucket_begins = false
  for _, bucket in ipairs(BUCKETS) do
    local letter, seconds = unpack(bucket)
    local field = letter .. math.floor(now / seconds)
    -- A sum that equals the number just added means that the field did not exist: a new bucket begins.
    if redis.call("HINCRBY", key, field, number) == number then
      bucket_begins = true
    end
  end
  redis.call("HINCRBY", key, "lifetime", number)
  if bucket_begins then
    local old = {}
    for _, field in ipairs(redis.call("HKEYS", key)) do
      if is_old(field) then
        old[#old + 1] = field
      end
    end
    if #old > 0 then
      redis.call("HDEL", key, unpack(old))
    end
    redis.call("EXPIRE", key, life)
    redis.call("ZADD", KEYS[1], math.floor(now / 60), name)
    redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", math.floor((now - life) / 60))
    redis.call("EXPIRE", KEYS[1], life)
  end
end
