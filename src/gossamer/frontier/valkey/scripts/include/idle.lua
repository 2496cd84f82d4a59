-- Runs that have nothing to do on this shard. (Run: one life of a crawl, from its first request to its end. Part: what
-- one spider does of it.) The names of the counters that are read here are stored; keys.py lists them. All functions
-- only read. They must be called after the counts of this call are written.
-- Names that are not declared below come from these files or their includes:
-- include counters
-- include end_reasons

-- Returns each spider that had requests of this run here, and how many of them (of both lanes) were dropped as expired:
-- name, count, ...
local function spiders_of(crawl)
  write_counters()
  local row, expired, spiders = redis.call("HGETALL", crawl.key), {}, {}
  for i = 1, #row, 2 do
    local kind, spider = string.match(row[i], "^([aD]):(.*)$")
    local dropped = kind == "D" and string.match(spider, "^(.*):expired$")
    if kind == "a" or dropped then
      local name = spider_of(dropped or spider)
      spiders[#spiders + 1] = not expired[name] and name or nil
      expired[name] = (expired[name] or 0) + (dropped and row[i + 1] or 0)
    end
  end
  local answer = {}
  for _, spider in ipairs(spiders) do
    answer[#answer + 1], answer[#answer + 2] = spider, expired[spider]
  end
  return answer
end

-- Whether every spider's part that had requests here was stopped or has expired.
local function all_parts_ended(crawl)
  local spiders = crawl.parts and spiders_of(crawl) or {}
  for k = 1, #spiders, 2 do
    if not end_reason(crawl, spiders[k]) then
      return false
    end
  end
  return crawl.parts ~= false
end

-- Whether the run, with nothing to do, stays idle for a while before it finishes.
local function stays_idle(crawl)
  return crawl.idle_ms > 0 and crawl.state == "r" and not all_parts_ended(crawl)
end
