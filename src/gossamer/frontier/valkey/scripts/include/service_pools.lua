-- Pools (groups of workers) of the crawls of a service, as in model/crawl.py: SHARED_POOL, and those of logins. Must hold:
-- the names, which are stored in crawls.

-- Returns true if a crawl's requests are leased by the workers of a service. The third value of a crawl is its pool
-- (codec.py); that of a login begins with the word `login`, and a colon. Else nil.
local function is_of_service(packed_crawl)
  return ({ shared = true, login = true })[string.match(cmsgpack.unpack(packed_crawl)[3], "^[^:]*")]
end
