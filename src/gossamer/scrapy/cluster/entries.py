"""From a request that a ClusterSpider yields to what the frontier keeps: under its parent's terms, for either lane."""

from dataclasses import replace

from scrapy import Request, Spider

from gossamer.errors import BadUrl
from gossamer.frontier.base import Lane
from gossamer.model.crawl import QueryOrder
from gossamer.model.payload import pack
from gossamer.policy.urls import canonical
from gossamer.scrapy.cluster.terms import stripped
from gossamer.scrapy.entries import MOST_PRIORITY, SPIDER_KEY, Entries, Entry, Name, _neutral
from gossamer.scrapy.live import CURRENT, Live
from gossamer.worker.page import child_priority

_NEUTRAL_META = frozenset(("attrs", "depth", SPIDER_KEY))


class ClusterEntries(Entries):
    """A child is one deeper than its parent and ten lower, where the spider does not say otherwise."""

    def of(self, request: Request, name: Name) -> Entry:
        """Raises Unstorable."""
        parent = CURRENT.get()
        if parent is None or parent.moving:
            return super().of(request, name)
        child = stripped(request, parent.request, parent.lease)
        entry = super().of(child, name)
        lease = parent.lease
        depth = lease.depth if is_handover(request, parent) else lease.depth + 1
        priority = max(-MOST_PRIORITY, min(_priority(request, lease.priority), MOST_PRIORITY))
        if name.spider == self._spider.name and _is_plain(child, self._spider):
            # Either lane may run a spider of this name.
            entry = replace(entry, payload=pack(_neutral(child)))
        return replace(entry, priority=priority, depth=min(depth, 2**16 - 1))

    def _mark(self, request: Request, url: str) -> int:
        # Fast workers that run a spider of this name know nothing of the project's fingerprinter.
        if Lane.FAST in self._frontier.spiders.lanes(self._spider.name):
            return self._outside(self._spider.name, request, url)
        return super()._mark(request, url)

    def _outside(self, spider: str, request: Request, url: str) -> int:
        parent = CURRENT.get()
        order = QueryOrder.SIGNIFICANT if parent is None else parent.lease.terms.query_order
        return self._frontier.spiders.fingerprint(
            spider, url, method=request.method, body=request.body, query_order=order
        )


def is_handover(request: Request, parent: Live) -> bool:
    """Whether it is the very page at hand, for another spider: no link is followed, so it is no deeper."""
    spider = request.meta.get(SPIDER_KEY)
    if spider is None or spider == parent.lease.spider:
        return False
    here = {parent.lease.url, parent.request.url, getattr(parent.answer, "url", "")}
    if request.url in here:
        return True
    try:
        return canonical(request.url) in here
    except BadUrl:
        return False


def _priority(request: Request, parent: int) -> int:
    if request.priority:
        return request.priority
    said = request.meta.get("priority")  # Scrapy Cluster's way to say it
    return said if type(said) is int else child_priority(parent)


def _is_plain(request: Request, spider: Spider) -> bool:
    callback = request.callback
    return (
        type(request) is Request
        and (callback is None or callback == spider.parse)
        and not (request.errback or request.cookies or request.cb_kwargs or request.flags)
        # A wanderer's next page is added unfiltered; that it is fetched needs no mark on the request itself.
        and (not request.dont_filter or getattr(spider, "ignores_maxdepth", False))
        and request.encoding == "utf-8"
        and _NEUTRAL_META.issuperset(request.meta)
        and all(len(request.headers.getlist(name)) == 1 for name in request.headers)
    )
