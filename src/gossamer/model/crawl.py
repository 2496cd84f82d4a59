"""A crawl, its runs, and the terms its requests travel under. Frozen data; no I/O."""

import base64
import hashlib
from enum import StrEnum
from functools import lru_cache
from typing import Any

import msgspec


@lru_cache(maxsize=4096)
def _token(appid: str, crawlid: str) -> str:
    name = f"{appid}\0{crawlid}".encode()
    return base64.urlsafe_b64encode(hashlib.blake2b(name, digest_size=12).digest()).decode()


class CrawlId(msgspec.Struct, frozen=True, order=True):
    """Who a crawl is: the application that owns it and its name there."""

    appid: str
    crawlid: str

    @property
    def token(self) -> str:
        """16 characters that stand for the crawl in key names (96 bits of BLAKE2b: no two crawls share one)."""
        return _token(self.appid, self.crawlid)

    def __str__(self) -> str:
        return f"{self.appid}/{self.crawlid}"


class Order(StrEnum):
    """In which order one queue gives its entries out: first in first out, or last in first out."""

    FIFO = "fifo"
    LIFO = "lifo"


class QueryOrder(StrEnum):
    """Whether URLs whose query parameters differ only in their order are two requests (`significant`) or one."""

    SIGNIFICANT = "significant"
    IGNORED = "ignored"


HITS_RANGE = (1, 1_000_000)
WINDOW_SECONDS_RANGE = (0.001, 7 * 86400)
SCALE_RANGE = (0, 1)
CONCURRENCY_RANGE = (1, 10_000)
"""Lowest and highest value that a rate or a domain policy may have. `domain.json` and `crawl.json` repeat them; a test
compares."""


class Rate(msgspec.Struct, frozen=True):
    """At most `hits` in any rolling `window_seconds`; `moderated`: also spaced `window/hits` apart."""

    hits: int
    window_seconds: float
    moderated: bool = True

    @property
    def is_in_range(self) -> bool:
        """True if a user may choose this rate."""
        return (
            HITS_RANGE[0] <= self.hits <= HITS_RANGE[1]
            and WINDOW_SECONDS_RANGE[0] <= self.window_seconds <= WINDOW_SECONDS_RANGE[1]
        )


SHARED_POOL = "shared"
"""The pool of a service's crawls: all its workers lease them."""


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    """What belongs to a whole crawl, whatever is submitted to it. Of a running crawl the first submission's counts."""

    id: CrawlId
    pool: str = SHARED_POOL
    """Which workers may lease it."""
    order: Order = Order.FIFO
    max_pages: int | None = None
    """Requests settled as fetched in one run, never exceeded. None: no limit."""
    rate: Rate | None = None
    """The crawl's own wish for every domain; capped by what the operator set and by robots.txt. None: the default."""
    concurrency: int | None = None
    """The crawl's own wish for requests in flight per domain. None: the default for the rate."""
    idle_seconds: float = 0.0
    """How long a run has nothing to do before it is finished: until then more requests join it."""


class Run(msgspec.Struct, frozen=True):
    """One run of a crawl, as `open_crawl` named it; every call about its requests carries it."""

    crawl: Crawl
    number: int
    """1 for the first."""
    generation: int
    """Of the seen-set: a fresh run has its own, others go on with the one before."""


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one submission asks; its requests and all their outlinks carry it. Stored once per distinct set.

    Filters apply to discovered links and redirect targets, never to the submitted URL itself.
    """

    maxdepth: int | None = None
    """Links are followed while depth < maxdepth. None: no limit; 0: only the submitted URL."""
    domain_max_pages: int | None = None
    domain_max_pending: int | None = None
    """At most so many queued URLs of this crawl on one domain; more are dropped, counted, and not marked as seen."""
    allowed_domains: tuple[str, ...] | None = None
    """With their subdomains. None: any."""
    allowed_hosts: tuple[str, ...] | None = None
    allowed_prefixes: tuple[str, ...] | None = None
    """Canonical URL prefixes (scheme, host and directory) of which a link must have one."""
    allow_regex: tuple[str, ...] | None = None
    deny_regex: tuple[str, ...] | None = None
    deny_extensions: tuple[str, ...] | None = None
    """None: the default list."""
    expires: float = 0.0
    """Epoch seconds after which nothing of this submission is leased. 0: never."""
    useragent: str | None = None
    cookie: str | None = None
    headers: dict[str, str] | None = None
    secret_headers: tuple[str, ...] = ()
    """Lower-case names of headers that are secret, besides those that always are (Authorization, Cookie)."""
    secrets_for: tuple[str, ...] = ()
    """Domains that get the cookie and the secret headers: the registered domains of the submitted URLs, and those that
    the submission names. Empty where the submission has no secret."""
    attrs: dict[str, Any] | None = None
    """Travels untouched from the submission to every page."""
    follow_nofollow: bool = False
    """Follow links marked rel=nofollow and pages marked nofollow too."""
    sitemaps: bool = False
    """Also feed what the sitemaps named in robots.txt list."""
    links: bool = False
    """Page records list all links with their anchor texts."""
    ignore_robots: bool = False
    insecure: bool = False
    """Certificates are not verified."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that may have a private address (the seeds' own, where the person said so)."""
    proxy: str | None = None
    timeout_seconds: float | None = None
    retries: int | None = None
    query_order: QueryOrder = QueryOrder.SIGNIFICANT
    """Of fingerprints only: a URL is fetched as it is written. Does not concern requests to Scrapy spiders."""


class CrawlState(StrEnum):
    """Where a run stands. `stopped` and `expired` keep their mark; a finished crawl starts a new run when asked."""

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    EXPIRED = "expired"


class CrawlEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a run, or of one spider's part of it: decided once, and kept until somebody has told the world."""

    event_id: str
    """32 hex digits, the same however often the event is told."""
    kind: CrawlState
    """`finished`, `stopped` or `expired`."""
    crawl: CrawlId
    run: int
    spider: str = ""
    """Whose part of the crawl; empty: all of it."""
    at: float
    """Epoch seconds by the server's clock."""
    purged: int = 0
    """Waiting requests that were dropped for it."""


class BudgetScope(StrEnum):
    """What shares one budget: a domain; a domain per spider (type); per egress address (ip); or both."""

    DOMAIN = "domain"
    TYPE = "type"
    IP = "ip"
    TYPE_IP = "type+ip"


class WhenBlacklisted(StrEnum):
    """What becomes of the requests of a blacklisted domain."""

    HELD = "held"
    """They wait until the domain is taken off the blacklist."""
    DROPPED = "dropped"
    """Each is dropped with a record, those that wait already too."""


class DomainPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Every field None: not set, the next level's counts (domain, then the operator's default, then the built-in)."""

    hits: int | None = None
    window_seconds: float | None = None
    moderated: bool | None = None
    elastic: bool | None = None
    """After a stall, the even gap shrinks by a tenth while the window holds fewer than `hits`."""
    scale: float | None = None
    """0..1, multiplies hits; below one hit the window is stretched; 0 pauses."""
    scope: BudgetScope | None = None
    concurrency: int | None = None
    blacklisted: bool | None = None
    """Not fetched."""
    when_blacklisted: WhenBlacklisted | None = None
    """Whether requests of the domain are held or dropped while it is blacklisted."""


BUILT_IN_POLICY = DomainPolicy(
    hits=1,
    window_seconds=1.0,
    moderated=True,
    elastic=True,
    scale=1.0,
    scope=BudgetScope.DOMAIN,
    blacklisted=False,
    when_blacklisted=WhenBlacklisted.HELD,
)
"""One hit a second, evenly spaced: polite and not glacial."""
