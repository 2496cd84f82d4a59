-- Pools (groups of workers) of the crawls of a service, as in model/crawl.py: SHARED_POOL, and those of logins. Must hold:
-- the names, which are stored in crawls.

-- Returns whether the workers of a service lease the requests of a crawl's pool, its third value (codec.py).
local function is_of_service(pool)
  return pool == "shared" or string.sub(pool, 1, 6) == "login:"
end
