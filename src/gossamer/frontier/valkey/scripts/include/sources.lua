-- Sources of leases: the queues of one crawl, spider and priority, on all domains that a call of `lease` takes requests
-- from. What these queues have in common is built once, and their requests are counted together. Token: 16 characters
-- that stand for a crawl. A group is "<pool>|<spider>".
-- Must hold: count_sources is called before write_all, or the counters of the crawl would be wrong, and its run would
-- never end or end too early. Fixed: the fields of a lease, which is stored (see lease.lua).
-- Names that are not declared below come from these files or their includes:
-- include queues

local sources_by_group, sources = {}, nil -- `sources`: of the group that is served now, by member of the agendas

-- Returns the source of a queue that is the head of an agenda. `before` and `behind`: the key of its queues around the
-- domain; `packed`: the first fields of its leases; `left` and `leased`: requests that have left its queues in this call,
-- and those of them that were leased.
local function source_of(crawl, spider, head)
  local source, token, priority = sources[head.member], crawl.token, head.priority
  if not source then
    source = { token = token, spider = spider, priority = priority, left = 0, leased = 0,
      before = BASE .. "q:" .. token .. "|" .. spider .. "|", behind = string.sub(head.member, 17), -- see queue_key
      packed = cmsgpack.pack(crawl.run, token, priority, spider),
      -- lease.lua sets these
      terms = false, terms_number = false, shown = false, start = false, spacing = false, packed_end = false }
    sources[head.member] = source
  end
  return source
end

-- Counts the requests that have left their queues in this call.
local function count_sources()
  for _, by_member in pairs(sources_by_group) do
    for _, source in pairs(by_member) do
      count_queued(source.token, source.spider, source.priority, -source.left)
      count_crawl(source.token, "h:" .. source.spider, source.leased)
    end
  end
end
