#!lua flags=allow-oom
-- A page of the crawls that this shard is home to.
-- KEYS  1 shard prefix
-- ARGV  1 now  2 prefix  3 application, or "" for all  4 cursor, "" to begin  5 about how many
--       6 running: 1 for those that run
-- Returns { next cursor, "" at the end, { crawls as the client packed them } }
-- include common
-- include known
local only, most = ARGV[3], tonumber(ARGV[5])
local inner, app = string.match(ARGV[4], "^(%d+)|(.*)$")
if not inner then
  inner, app = "0", only
  if only == "" then
    app = redis.call("ZRANGE", P .. "apps", 0, 0)[1]
  end
end
local found, steps = {}, 0
while app and #found < most and steps < 1000 do
  steps = steps + 1
  local key = ARGV[6] == "1" and running_key(app, "") or P .. "crawls:" .. app
  local reply = redis.call("SSCAN", key, inner, "COUNT", most - #found)
  for _, token in ipairs(reply[2]) do
    local blob = redis.call("HGET", P .. "h:" .. token, "crawl")
    if blob then
      found[#found + 1] = blob
    end
  end
  inner = reply[1]
  if inner == "0" then
    local following = only == "" and redis.call("ZRANGEBYLEX", P .. "apps", "(" .. app, "+", "LIMIT", 0, 1) or {}
    app = following[1]
  end
end
return { app and inner .. "|" .. app or "", found }
