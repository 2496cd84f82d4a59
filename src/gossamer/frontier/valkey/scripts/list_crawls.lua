#!lua flags=allow-oom
-- Return a page of the crawls that this shard is home to (whose ends it decides). It walks over the applications by
-- name, and over the set of each one's crawls.
-- KEYS  1 prefix of the shard's keys (shard: a part of the frontier, the store of requests, on one server)
-- ARGV  1, 2 see include/shard.lua  3 application, or "" for all  4 cursor, "" to begin  5 crawls to return
--       (approximate)  6 running: 1 for those that run
-- Returns { next cursor, "" at the end, { crawls as the client packed them } }
-- Touches (see keys.py) apps, clock, crawls:{appid}, h:{token}, running:{spider}|{appid}, running:|{appid}
-- Names that are not declared below come from these files in include/, or from their own includes:
-- include shard
-- include running
local MOST_STEPS = 1000 -- scans that one call makes
local only_app, most = ARGV[3], tonumber(ARGV[5])
-- The cursor: "<inner cursor>|<application>".
local inner, app = string.match(ARGV[4], "^(%d+)|(.*)$")
if not inner then
  inner, app = "0", only_app
  if only_app == "" then
    app = redis.call("ZRANGE", BASE .. "apps", 0, 0)[1]
  end
end
local found, steps = {}, 0
while app and #found < most and steps < MOST_STEPS do
  steps = steps + 1
  local key = ARGV[6] == "1" and running_key(app, "") or BASE .. "crawls:" .. app
  local tokens
  inner, tokens = unpack(redis.call("SSCAN", key, inner, "COUNT", most - #found))
  for _, token in ipairs(tokens) do
    local packed_crawl = redis.call("HGET", BASE .. "h:" .. token, "crawl")
    if packed_crawl then
      found[#found + 1] = packed_crawl
    end
  end
  if inner == "0" then -- all crawls of this application were visited
    local following = only_app == "" and redis.call("ZRANGEBYLEX", BASE .. "apps", "(" .. app, "+", "LIMIT", 0, 1) or {}
    app = following[1]
  end
end
return { app and inner .. "|" .. app or "", found }
