"""Answers about crawls and workers."""

from dataclasses import dataclass, field

from gossamer.model.crawl import CrawlId, CrawlState


@dataclass(slots=True)
class SpiderCounts:
    """One spider's part of a crawl. `added = queued + later + leased + fetched + failed + dropped` always holds;
    `links_dropped` counts links that never became requests."""

    added: int = 0
    queued: int = 0
    later: int = 0
    leased: int = 0
    fetched: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, int] = field(default_factory=dict)
    links_dropped: dict[str, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        return self.fetched + sum(self.failed.values()) + sum(self.dropped.values())


@dataclass(slots=True)
class CrawlInfo:
    """Where a crawl stands, all shards together."""

    crawl: CrawlId
    pool: str
    state: CrawlState
    """`stopped` or `expired` also where each spider's part was: only other spiders can begin the next run."""
    run: int
    started: float
    """Epoch seconds by the server's clock."""
    ended: float | None
    domains: int
    """With requests that wait: in queues or for a retry."""
    seen: int
    queued_by_priority: dict[int, int] = field(default_factory=dict)
    spiders: dict[str, SpiderCounts] = field(default_factory=dict)
    expires: dict[str, float] = field(default_factory=dict)
    """By spider: when its part expires, in epoch seconds; 0: never. Of spiders that something was submitted for."""

    def expires_at(self, spider: str) -> float:
        """When this spider's part expires (empty: the last of all parts), in epoch seconds. 0: never."""
        if spider:
            return self.expires.get(spider, 0.0)
        times = self.expires.values()
        return max(times) if times and all(times) else 0.0

    def total(self) -> SpiderCounts:
        """All spiders together."""
        whole = SpiderCounts()
        for part in self.spiders.values():
            whole.added += part.added
            whole.queued += part.queued
            whole.later += part.later
            whole.leased += part.leased
            whole.fetched += part.fetched
            for mine, theirs in (
                (whole.failed, part.failed),
                (whole.dropped, part.dropped),
                (whole.links_dropped, part.links_dropped),
            ):
                for reason, count in theirs.items():
                    mine[reason] = mine.get(reason, 0) + count
        return whole


@dataclass(slots=True)
class AppInfo:
    """What waits of an application, for one spider or for all."""

    waiting: int
    """Requests in queues or waiting for a retry."""
    crawls: int
    """Crawls that run; of one spider, those for which something was submitted for it."""
    domains: int
    """With requests that wait. Of all spiders: a domain counts for each spider that has some there."""


@dataclass(slots=True)
class DomainInfo:
    """What of a crawl waits on one domain."""

    domain: str
    queued: int = 0
    later: int = 0
    """Requests that wait for a retry."""
    by_priority: dict[int, int] = field(default_factory=dict)
    """All that waits: in queues or for a retry."""
    pages: int = 0
    """Handed out or fetched, where a budget per domain is kept; else 0."""
    by_spider: dict[str, dict[int, int]] = field(default_factory=dict)
    """The same for each spider, by priority."""


@dataclass(slots=True)
class WorkerInfo:
    """A worker that holds a seat at the frontier."""

    name: str
    """host-pid-random."""
    silent_seconds: float
    """Since its last sign of life."""
    leased: int


@dataclass(slots=True)
class Backlog:
    """What waits for one spider, all crawls together."""

    spider: str
    queued: int
    domains: int
    """With queued requests; counted again for each pool that has some."""


@dataclass(slots=True)
class UrlInfo:
    """What the frontier knows of one URL in a crawl: the answer behind `gossamer why`."""

    seen: bool
    place: str
    """`queued`, `later`, `leased`, `done` (seen, and nowhere now) or `unknown`."""
    position: int | None = None
    """Entries before it in its queue; None when it is not queued or lies deeper than was looked."""
    priority: int | None = None
    due: float | None = None
    """Epoch seconds before which its domain (or its retry) is not due."""
    held_by: str | None = None
    """The worker that has it."""
    blocked_until: float | None = None
