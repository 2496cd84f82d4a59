"""Crawls, their runs, the terms of a submission, and the policies of domains. Frozen data; no I/O.

The frontier (the store of waiting requests) keeps all of these, so an upgraded program reads those of an older one.
Terms are stored by field name, without fields that have their default: a field may be added with a default, but none
may be renamed, and no default may change. Crawl, Rate and DomainPolicy are stored as `frontier/valkey/codec.py` packs
them: a new field must be added there, too. Values of the enumerations are stored and part of messages: fixed.
"""

import base64
import hashlib
import math
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from gossamer.model.content import ContentOptions
from gossamer.model.extraction import Extraction
from gossamer.model.rendering import RenderStep, RenderTerms


@lru_cache(maxsize=4096)  # crawls whose token is remembered
def _token(appid: str, crawlid: str) -> str:
    """Return `CrawlId.token`. Must not change: the keys of existing crawls contain it."""
    name = f"{appid}\0{crawlid}".encode()
    return base64.urlsafe_b64encode(hashlib.blake2b(name, digest_size=12).digest()).decode()


class CrawlId(msgspec.Struct, frozen=True, order=True):
    """Identity of a crawl: the application that owns it, and its name there."""

    appid: str
    crawlid: str

    @property
    def token(self) -> str:
        """16 characters that stand for the crawl in key names: 96 bits of BLAKE2b, so no two crawls share one."""
        return _token(self.appid, self.crawlid)

    def __str__(self) -> str:
        return f"{self.appid}/{self.crawlid}"


class Order(StrEnum):
    """Order in which a queue hands out its entries: first in first out, or last in first out."""

    FIFO = "fifo"
    LIFO = "lifo"


class QueryOrder(StrEnum):
    """Meaning of the order of query parameters: URLs that differ only in it are two requests (`significant`) or one."""

    SIGNIFICANT = "significant"
    IGNORED = "ignored"


N = TypeVar("N", int, float)


class ValueRange(NamedTuple, Generic[N]):
    """Lowest and highest value that a setting may have."""

    low: N
    high: N


# Ranges of the values of a rate or a domain policy. The schemas `domain.json` and `crawl.json` repeat them: change both
# (a test compares). A narrower range rejects policy files and requests that are valid today.
HITS_RANGE = ValueRange(1, 1_000_000)
WINDOW_SECONDS_RANGE = ValueRange(0.001, 7 * 86400)
SCALE_RANGE = ValueRange(0, 1)
CONCURRENCY_RANGE = ValueRange(1, 10_000)


class Rate(msgspec.Struct, frozen=True):
    """At most `hits` (requests that are charged) in any rolling `window_seconds`; with `moderated`, hits are also
    window/hits seconds apart."""

    hits: int
    window_seconds: float
    moderated: bool = True

    @property
    def is_in_range(self) -> bool:
        """True if a user may choose this rate."""
        return (
            HITS_RANGE.low <= self.hits <= HITS_RANGE.high
            and WINDOW_SECONDS_RANGE.low <= self.window_seconds <= WINDOW_SECONDS_RANGE.high
        )


SHARED_POOL = "shared"
"""Pool (group of workers) of a service's crawls: all workers of the service lease their requests. Must not change:
crawls are stored with the name of their pool."""
_LOGIN_POOL = "login:"
"""Beginning of the pools of a service's crawls that log in, before the login's name. Must not change, as above."""


def login_pool(login: str) -> str:
    """Return the pool of the crawls that log in by this login of the service."""
    return f"{_LOGIN_POOL}{login}"


def login_of(pool: str) -> str:
    """Return the login of the service that a pool is for. Empty: it is for none."""
    return pool.removeprefix(_LOGIN_POOL) if pool.startswith(_LOGIN_POOL) else ""


def workers_of(pool: str) -> str:
    """Return the pool whose workers lease the requests of a pool: for one of a login, those of the service."""
    return SHARED_POOL if pool.startswith(_LOGIN_POOL) else pool


class Crawl(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a whole crawl. The first submission of a run sets them; those of later ones are ignored."""

    id: CrawlId
    pool: str = SHARED_POOL
    """Pool of workers that may lease it; of a service, SHARED_POOL or that of a login."""
    order: Order = Order.FIFO
    max_pages: int | None = None
    """Largest number of requests settled as fetched in one run; never exceeded. None: no limit."""
    rate: Rate | None = None
    """Requested rate for every domain, capped by the operator's policies and by robots.txt. None: the default rate."""
    concurrency: int | None = None
    """Requested number of requests in flight per domain. None: the default for the rate."""
    idle_seconds: float = 0.0
    """Seconds without any request left after which a run is finished. New requests join the run until then."""
    keep_failed: bool = False
    """True: requests that got no answer are kept, so that `retry_failed` can repeat them; and the counters and
    `max_pages` go on from run to run, until a fresh one."""
    keep_all_failed: bool = False
    """True: all requests that fail are kept for `Frontier.retry_failed`, about 15,000 on each shard, until a run begins
    whose counters do not go on."""

    @property
    def is_of_service(self) -> bool:
        """True: the workers of a service fetch for it, beside other crawls."""
        return workers_of(self.pool) == SHARED_POOL


_MOST_IN_FLIGHT = 16
"""Largest default of the requests in flight per domain. As in budgets.lua."""


def site_concurrency(crawl: Crawl) -> int:
    """Return how many requests of a crawl may be in flight on a domain by its own options; 0: the policy decides."""
    if crawl.concurrency is not None or crawl.rate is None:
        return crawl.concurrency or 0
    hits_a_second = crawl.rate.hits / crawl.rate.window_seconds
    return 1 if hits_a_second <= 1 else min(_MOST_IN_FLIGHT, math.ceil(2 * hits_a_second))


class Run(msgspec.Struct, frozen=True):
    """One run of a crawl: its life from the first request until none is left or it is stopped. `open_crawl` returns
    it, and calls about its requests pass it."""

    crawl: Crawl
    number: int
    """1 for the first run."""
    generation: int
    """Number of the seen-set (the URLs that need not be added again). A fresh run has a new one; other runs continue
    with that of the run before."""


ChangeLevel = Literal["bytes", "text", "items", "links"]
"""Differences of a page that count as a change: any of the bytes; of the main text or the items; of the items; of the
set of links."""


class RevisitRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of the pages of a crawl that is kept up to date whose URLs match an expression. The first rule that
    matches a URL decides."""

    match: str
    """Regular expression, searched as those of `allow_regex` are with `regex_from_host`."""
    shortest: float = 0.0
    """As in RevisitOptions; 0: that of the crawl."""
    longest: float = 0.0
    level: ChangeLevel | None = None
    """Difference that counts as a change. None: any, but another template is told once for all pages of a pattern."""
    keep: str = ""
    """CSS selector of the elements whose text counts as the main text. Empty: the usual ones."""
    drop: str = ""
    """CSS selector of elements whose text does not count. Empty: none."""
    window: str = ""
    """As in RevisitOptions; empty: that of the crawl."""


class RevisitOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of a crawl that is kept up to date. Times in seconds."""

    shortest: float = 3600.0
    """Shortest time between two visits of a page."""
    longest: float = 30 * 86_400.0
    """Longest time between two visits of a page."""
    budget_visits: int = 0
    """Largest number of visits in any time of `budget_seconds`. 0: no limit."""
    budget_seconds: float = 0.0
    confirm: float = 600.0
    """Time after which a page that was missing is tried again, to tell a mistake of the server from a page that is
    gone."""

    rules: tuple[RevisitRule, ...] = ()
    unchanged: bool = False
    """True: fetches that found no change are told, too."""
    versions: int = 0
    """Number of the last versions of each page that the index keeps."""
    window: str = ""
    """Cron line of the minutes in which visits may begin. Empty: at any time."""
    zone: str = "UTC"
    """Name of the time zone of all windows."""
    ignore_feeds: bool = False
    """True: feeds that pages name are not visited."""

    @property
    def budget_rate(self) -> float | None:
        """Visits per second of the budget. None: there is no budget."""
        return self.budget_visits / self.budget_seconds if self.budget_visits else None


class Terms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Options of one submission, which its requests and all their outlinks share. Equal terms are stored once.

    Filters apply to discovered links and redirect targets, never to the submitted URL itself.
    """

    maxdepth: int | None = None
    """Links of a page are followed while its depth < maxdepth. None: no limit. 0: only the submitted URL is fetched."""
    domain_max_pages: int | None = None
    """Largest number of fetched pages of this crawl on one domain. None: no limit."""
    domain_max_pending: int | None = None
    """Largest number of queued URLs of this crawl on one domain. More are dropped and counted, but not marked as
    seen."""
    allowed_domains: tuple[str, ...] | None = None
    """Domains to stay on, with their subdomains. None: any."""
    allowed_hosts: tuple[str, ...] | None = None
    """Hosts to stay on, without their subdomains. None: any."""
    allowed_prefixes: tuple[str, ...] | None = None
    """Canonical URL prefixes, one of which a link must have; http or https makes no difference. None: any URL."""
    allow_regex: tuple[str, ...] | None = None
    """A link must match one of these expressions. None: any link."""
    deny_regex: tuple[str, ...] | None = None
    """A link must match none of these expressions."""
    regex_from_host: bool = False
    """True: expressions that name no scheme are searched from the host on (`shop.test/a`), so that the `/` of `/shop`
    is not the one before the host. False, as in Scrapy: in the whole URL."""
    deny_extensions: tuple[str, ...] | None = None
    """None: the default list (`DENIED_EXTENSIONS` in policy/scope.py)."""
    expires: float = 0.0
    """Time in epoch seconds after which no request of this submission is leased. 0: never."""
    links_expire: float | None = None
    """Time after which no link of its pages is leased, if the window of a visit limits `expires`. None: `expires`."""
    useragent: str | None = None
    cookie: str | None = None
    headers: dict[str, str] | None = None
    secret_headers: tuple[str, ...] = ()
    """Lower-case names of secret headers, besides those that always are secret (such as Authorization and Cookie)."""
    secrets_for: tuple[str, ...] = ()
    """Domains that get the cookie and the secret headers: the registered domains of the submitted URLs, and those that
    the submission names. Empty where the submission has no secret."""
    attrs: dict[str, Any] | None = None
    """Copied unchanged from the submission to every record."""
    follow_nofollow: bool = False
    """True: also follow links with rel=nofollow, and the links of pages marked nofollow."""
    sitemaps: bool = False
    """True: also fetch the URLs in the sitemaps that robots.txt names."""
    links: bool = False
    """True: page records list all links with their anchor texts."""
    ignore_robots: bool = False
    """True: fetch URLs that robots.txt forbids."""
    insecure: bool = False
    """True: do not verify certificates."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that may have a private address (those of the seeds, where the user allowed it)."""
    proxy: str | None = None
    """List of proxies (fetch/proxies.py), one of which each request goes through. None: the operator's."""
    timeout_seconds: float | None = None
    """Limit of one fetch. None: the worker's setting."""
    retries: int | None = None
    """Largest number of repetitions of a failed fetch. None: the worker's setting."""
    query_order: QueryOrder = QueryOrder.SIGNIFICANT
    """Concerns only fingerprints: a URL is fetched as it is written. Requests to Scrapy spiders ignore it."""
    pattern_max_pages: int | None = None
    """Largest number of URLs of one pattern that a worker process follows: URLs that differ only in numbers, tokens and
    the values of query parameters. None: no limit."""
    path_repeats: int | None = None
    """Segments of a link's path that may repeat earlier ones. None: DEFAULT_PATH_REPEATS of policy/patterns.py."""
    drop_parameters: tuple[str, ...] = ()
    """Names of query parameters without which URLs are followed; with `*` for any characters. A URL that a redirect
    leads to keeps them, but counts as the same URL as that without them."""
    unique: tuple[str, ...] = ()
    """Fields that tell items apart: of those with equal values in all of them, only the first is written. Scrapy
    spiders ignore it. Empty: all items are written."""
    content: ContentOptions | None = None
    """Main content of pages that records or items are to have. None: none."""
    extract: Extraction | None = None
    """Rules by which workers take items from pages. Scrapy spiders ignore them. None: none."""
    assets: tuple[str, ...] = ()
    """Kinds of assets to fetch (`model/assets.py`): files that pages embed or link. Scrapy spiders ignore them."""
    max_assets: int | None = None
    """Largest number of assets of the crawl that are queued on one shard. More are dropped and counted. None: no
    limit."""
    render: bool = False
    """True: links that are found are rendered in a browser, unless the spider decides otherwise. The submitted URL
    itself is what its batch says."""
    render_auto: bool = False
    """True: a browser builds pages if that changes their links or main text."""
    render_steps: tuple[RenderStep, ...] = ()
    """Steps that a browser takes on each page before the document is read."""
    render_match: tuple[str, ...] = ()
    """Expressions one of which is found in the URL of a page that a browser builds. They are searched as those of
    `allow_regex` are with `regex_from_host`."""
    render_screenshot: str = ""
    """Screenshot of each page that a browser builds: `page`, or the CSS selector of an element. Empty: none."""
    render_capture: tuple[str, ...] = ()
    """Expressions of the URLs of answers in JSON that such pages fetch, and that their records have."""
    render_terms: RenderTerms | None = None
    """Rules for the building of such pages that differ from the worker's settings. None: there are none."""
    recrawl: RevisitOptions | None = None
    """Options by which a page index keeps the crawl up to date. None: it has no index."""
    session: str = ""
    """`cookies`: cookies that a site sets are sent to it. `login`: workers also log in, as their session file says.
    Empty: each request stands alone."""

    def of_links(self) -> "Terms":
        """Return the terms of the links of a page."""
        if self.links_expire is None:
            return self
        return msgspec.structs.replace(self, expires=self.links_expire, links_expire=None)


class CrawlState(StrEnum):
    """State of a crawl's run.

    A submission to a finished crawl starts a new run. A stopped or expired crawl has a stop marker, which prevents
    that.
    """

    RUNNING = "running"
    FINISHED = "finished"
    STOPPED = "stopped"
    EXPIRED = "expired"


class CrawlEvent(msgspec.Struct, frozen=True, kw_only=True):
    """End of a run, or of one spider's part of it. It is decided once, and the frontier keeps it until a service has
    published it."""

    event_id: str
    """32 hex digits, the same each time the event is published."""
    kind: CrawlState
    """`finished`, `stopped` or `expired`."""
    crawl: CrawlId
    run: int
    spider: str = ""
    """Spider whose part of the crawl ended; empty: the whole crawl ended."""
    at: float
    """Time in epoch seconds, by the clock of the frontier's server."""
    purged: int = 0
    """Number of waiting requests that were dropped."""


class BudgetScope(StrEnum):
    """Scope of one budget: a domain; a domain and spider (type); a domain and egress address (ip); or all three."""

    DOMAIN = "domain"
    TYPE = "type"
    IP = "ip"
    TYPE_IP = "type+ip"


class WhenBlacklisted(StrEnum):
    """Treatment of the requests of a blacklisted domain."""

    HELD = "held"
    """They wait until the domain is no longer blacklisted."""
    DROPPED = "dropped"
    """Each is dropped with a record, also those that already wait."""


class DomainPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Politeness towards a domain. A field that is None is taken from the next level: the domain's own policy, then the
    operator's default, then BUILT_IN_POLICY."""

    hits: int | None = None
    window_seconds: float | None = None
    moderated: bool | None = None
    """True: hits are evenly spaced, as in `Rate`."""
    elastic: bool | None = None
    """True: after a stall, the even gap shrinks by a tenth while the window holds fewer than `hits` hits."""
    scale: float | None = None
    """Factor for `hits`, from 0 to 1. If that leaves less than one hit, the window is stretched. 0 pauses the
    domain."""
    scope: BudgetScope | None = None
    """Requests that share this budget."""
    concurrency: int | None = None
    """Largest number of requests in flight. None at every level: the default for the rate."""
    blacklisted: bool | None = None
    """True: nothing is fetched from the domain."""
    when_blacklisted: WhenBlacklisted | None = None
    """Treatment of the domain's requests while it is blacklisted."""


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
"""Policy for whatever the operator has not set: one hit a second, evenly spaced. It is polite, yet not very slow. They
apply at once to every domain without a policy. Only `concurrency` may be None."""
