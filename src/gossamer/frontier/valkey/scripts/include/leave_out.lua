-- Queues that a lease meets and takes nothing from: those of crawls or spiders' parts that have ended, and those of a
-- paused crawl. Must hold: requests of a paused crawl stay where they are; they are put back as starved ones
-- (pause_run.lua).
-- Names that are not declared below come from these files or their includes:
-- include discarding
-- include end_reasons
-- include starving

-- Discards a queue whose crawl or part has ended, or sets one of a paused crawl aside. Returns whether it was either.
-- `crawl`: false where the shard does not know it. `head`: the queue, from head_of.
local function leave_out(crawl, group, spider, domain, head)
  local is_paused = crawl and crawl.state == "p"
  if is_paused then
    starve(crawl, group, domain, head.member)
  elseif not crawl or end_reason(crawl, spider) then
    discard_queue(head.token, group, spider, domain, head.priority)
  else
    return false
  end
  return true
end
