"""Priorities of the requests that a page or a sitemap leads to."""

PRIORITY_STEP = 10
"""A link's priority is its page's minus this, so that a crawl is breadth first. Fixed: Scrapy Cluster's value,
documented for spiders (`Follow.priority`)."""
LOWEST_PRIORITY = -65_000
"""Lowest priority that a link gets. Fixed: must equal LOWEST_PRIORITY in the frontier's settle.lua."""


def child_priority(priority: int) -> int:
    """Return the priority of a link on a page of this priority."""
    return max(priority - PRIORITY_STEP, LOWEST_PRIORITY)


def sitemap_priority(priority: int) -> int:
    """Return the priority of a sitemap whose pages are to have this one: they go first, but before their links."""
    return max(priority - 1, LOWEST_PRIORITY)
