"""Information about crawls, domains, spiders, workers and URLs, as the frontier (the store of requests) returns it.

A run is one life of a crawl, from its first request until nothing is left; a request that a worker holds is leased.

Nothing here is stored. The API and `--json` output choose their own field names, so fields may be renamed together with
their readers in Python, and added freely. The sum in SpiderCounts is a promise that the frontier's tests check.
"""

from collections.abc import Iterable

import msgspec

from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Terms
from gossamer.model.growth import PatternCount


class SpiderCounts(msgspec.Struct):
    """Counts of one spider's part of a crawl.

    `added = queued + later + leased + fetched + failed + dropped` always holds. `links_dropped` counts links that never
    became requests, so it is not part of that sum.
    """

    added: int = 0
    queued: int = 0
    later: int = 0
    """Requests that wait for a time before they are queued again: retries, and requests that were postponed. They are
    not part of `queued`."""
    leased: int = 0
    """Requests that a worker holds."""
    fetched: int = 0
    failed: dict[str, int] = {}
    """By reason, as are the next three."""
    dropped: dict[str, int] = {}
    links_dropped: dict[str, int] = {}
    retried: dict[str, int] = {}
    """Attempts after which the request waited for another one, not part of the sum either."""

    @property
    def waiting(self) -> int:
        """Number of waiting requests: those in queues and those to be queued later."""
        return self.queued + self.later

    @property
    def done(self) -> int:
        """Number of requests that have ended."""
        return self.fetched + sum(self.failed.values()) + sum(self.dropped.values())


class CrawlInfo(msgspec.Struct):
    """State of a crawl, summed over all shards (the servers that share the frontier)."""

    crawl: CrawlId
    pool: str
    """Group of workers that may lease its requests."""
    state: CrawlState
    """`running`, or how the run ended. A crawl whose spiders were stopped one by one is `stopped` as well, and
    `expired` where all have expired: only other spiders can begin its next run."""
    run: int
    """Number of its latest run, from 1."""
    started: float
    """Start of that run in epoch seconds, by the server's clock."""
    ended: float | None
    """End of that run; None while it is running."""
    domains: int
    """Number of domains with waiting requests, in queues or to be queued later."""
    seen: int
    """Number of distinct requests that were ever added, also by earlier runs that this one continues. None of them is
    added again."""
    first_started: float = 0.0
    """Start of the first run of those that this one continues, such as the one whose failures are retried; `started`
    where it continues none. 0: not known."""
    kept_failed: int = 0
    """Number of requests that got no answer, and are kept: when the crawl is started again, they are queued again
    without being added."""
    forgotten_failed: int = 0
    """Number of those that are not kept, because there were too many."""
    repairs: int = 0
    """Number of repairs that found wrong counts, because a server had lost a part of its writes. More requests may be
    gone than those that count as lost: others that were there twice make up for them in the counts."""
    is_rebuilt: bool = False
    """True: it is being filled from its records or from an export, or a command that did so was killed."""
    is_paused: bool = False
    """True: its requests are not handed out."""
    growing: dict[str, PatternCount] = {}
    """Pages that may have no end, by the pattern of their URLs: only patterns with many."""
    queued_by_priority: dict[int, int] = {}
    spiders: dict[str, SpiderCounts] = {}
    options: Crawl | None = None
    """Options with which the run was opened. None: not known."""
    rendering: SpiderCounts = msgspec.field(default_factory=SpiderCounts)
    """Counts of the requests of the lane `browser`, those that are to be rendered or were: of all spiders, which count
    them, too. A request that changes its lane is counted as added in its new one."""
    expires: dict[str, float] = {}
    """By spider, the time when its part expires, in epoch seconds; 0: never. Only spiders with a submission appear."""

    def expires_at(self, spider: str) -> float:
        """Return the time when this spider's part expires (empty: the last part of all), in epoch seconds; 0: never."""
        if spider:
            return self.expires.get(spider, 0.0)
        times = self.expires.values()
        return max(times) if times and all(times) else 0.0

    @property
    def assets(self) -> SpiderCounts:
        """Counts of the assets, the files that pages embed or link."""
        return self.spiders.get(ASSET_SPIDER, SpiderCounts())

    @property
    def pages(self) -> SpiderCounts:
        """Counts of all spiders together, without assets."""
        return summed([part for name, part in self.spiders.items() if name != ASSET_SPIDER])

    def total(self) -> SpiderCounts:
        """Return the counts of all spiders and of the assets together."""
        return summed(self.spiders.values())


def summed(parts: Iterable[SpiderCounts]) -> SpiderCounts:
    """Return the sum of these counts, as a new object."""
    whole = SpiderCounts()
    for part in parts:
        whole.added += part.added
        whole.queued += part.queued
        whole.later += part.later
        whole.leased += part.leased
        whole.fetched += part.fetched
        for mine, theirs in (
            (whole.failed, part.failed),
            (whole.dropped, part.dropped),
            (whole.links_dropped, part.links_dropped),
            (whole.retried, part.retried),
        ):
            for reason, count in theirs.items():
                mine[reason] = mine.get(reason, 0) + count
    return whole


class NextRetry(msgspec.Struct, frozen=True):
    """Request of a crawl that waits for a retry, the first that is due."""

    domain: str
    due: float
    """Epoch seconds."""


class AppInfo(msgspec.Struct):
    """Waiting requests of an application, for one spider or for all."""

    waiting: int
    """Requests in queues or to be queued later."""
    crawls: int
    """Running crawls; for one spider, those with a submission for it."""
    domains: int
    """Domains with waiting requests. A domain counts once for each spider with requests there, and once more for each
    where some of them are to be rendered: the frontier has a counter for each, and adds them up."""


class DomainInfo(msgspec.Struct):
    """Waiting requests of a crawl on one domain."""

    domain: str
    queued: int = 0
    later: int = 0
    """Requests to be queued later, most of them retries."""
    by_priority: dict[int, int] = {}
    """Requests in queues or to be queued later, by priority."""
    pages: int = 0
    """Leased or fetched pages, where the crawl has a page budget per domain; else 0."""
    rendering: int = 0
    """Requests that wait for a worker with a browser. The other counts contain them."""
    by_spider: dict[str, dict[int, int]] = {}
    """As `by_priority`, for each spider."""


class WorkerInfo(msgspec.Struct):
    """A worker with a session at the frontier."""

    name: str
    """Host, process id and a random part, joined by `-`."""
    silent_seconds: float
    """Seconds since its last heartbeat."""
    leased: int
    browser: bool = False
    """True: it has a browser, and takes requests that are to be rendered."""


class Backlog(msgspec.Struct):
    """Queued requests for one spider, of all crawls."""

    spider: str
    queued: int
    domains: int
    """Domains with queued requests; a domain counts once for each pool that has some, because each pool has queues of
    its own, and once more for those that are to be rendered."""
    rendering: int = 0
    """Queued requests that are to be rendered."""


class UrlInfo(msgspec.Struct):
    """State of one URL in a crawl, for `gossamer why`."""

    spider: str
    seen: bool
    place: str
    """`queued`, `later`, `leased`, `done` (seen, and in none of these), or `unknown`: not seen, or more requests wait
    than were searched."""
    position: int | None = None
    """Number of requests before it in its queue. None: it is not queued, or deeper in the queue than was searched."""
    priority: int | None = None
    due: float | None = None
    """Time before which its domain (or its retry) is not due, in epoch seconds."""
    held_by: str | None = None
    """Worker that has leased it."""
    blocked_until: float | None = None
    """Time in epoch seconds until which its domain may not be fetched, because the site asked for a pause, or refused a
    page."""
    rests: bool = False
    """True: its domain may not be fetched because the site has refused a page."""
    failed_attempts: int | None = None
    """Attempts at its request that have failed. None: not known, because the request was not found, or is done."""
    deaths: int = 0
    """Workers that have died while they held the request."""
    failure: str = ""
    """Reason of the last attempt, such as `connect` or `http_503`, of a request that its crawl keeps as failed. Empty:
    there is no such request."""
    dropped: str = ""
    """Reason why a request that is `done` was dropped: the end of its crawl, or of its spider's part, dropped it where
    it waited, and its entry is still there. Empty: not known, or it was not."""
    render: bool = False
    """True: its request was found, and is to be rendered."""
    terms: Terms | None = None
    """Terms that its request carries: the options of one submission. None: not known, because the request was not
    found, or is done."""

    @property
    def waits(self) -> bool:
        """True: its request waits in a queue, for its turn or for a retry."""
        return self.place in ("queued", "later")


class DomainLimit(msgspec.Struct, frozen=True):
    """Limit of the requests to a domain, and its use now."""

    cause: str
    """`policy`: the operator's policy; `crawl`: the rate that the crawl asks for; `robots`: the delay of robots.txt."""
    hits: int
    """Most hits (fetches) in any window."""
    window_seconds: float
    used: int
    """Hits in the window that ends now."""

    @property
    def hits_a_second(self) -> float:
        """Most hits a second, on average."""
        return self.hits / self.window_seconds


class DomainLoad(msgspec.Struct, frozen=True):
    """Limits of the requests to a domain, and their use now."""

    limits: tuple[DomainLimit, ...]
    """Each hit must fit into all of them."""
    in_flight: int
    concurrency: int | None
    """Most requests in flight. None: any number."""
    blocked_until: float | None
    """Time in epoch seconds until which the site asked for a pause, or the domain rests after a refusal. None: it is
    not blocked."""
    is_paused: bool
    """True: the policy holds all requests back."""

    @property
    def narrowest(self) -> DomainLimit:
        """The limit that allows the fewest hits a second."""
        return min(self.limits, key=lambda limit: limit.hits_a_second)
