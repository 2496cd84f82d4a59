-- Terms (options of one submission) that this shard knows. Fixed, because they are stored: the fields "d<digest>".

-- Returns the number of terms on this shard; nil where nothing was queued under them. `digest`: of the packed terms.
local function known_terms(crawl, digest, packed_terms)
  if crawl.first_terms == packed_terms then
    return 1
  end
  local number = redis.call("HGET", BASE .. "t:" .. crawl.token, "d" .. digest)
  return number and tonumber(number) or nil
end
