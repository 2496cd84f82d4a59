"""Requests after parsing, and what a crawl request becomes in the frontier (the store of waiting requests).

It becomes a crawl (options that all requests of the crawl share), terms (options of this submission) and a payload
(method and body). Names, types and defaults of fields are those of the schemas `crawl`, `action`, `stats` and `domain`,
which senders rely on: none may change, and a new field needs a line in the schema. A field that must reach the worker
also needs one in `CrawlRequest.terms` or `payload`.
"""

import base64
from typing import Any, Literal

import msgspec

from gossamer.errors import RequestRejected
from gossamer.model.assets import read_kinds
from gossamer.model.content import ContentOptions, content_options_for
from gossamer.model.crawl import (
    SHARED_POOL,
    ChangeLevel,
    Crawl,
    CrawlId,
    Order,
    QueryOrder,
    Rate,
    RevisitOptions,
    RevisitRule,
    Terms,
    login_pool,
)
from gossamer.model.extraction import Extraction, read_extraction
from gossamer.model.logouts import NEVER_FOLLOWED
from gossamer.model.rendering import ExtraKind, OtherSites, RenderTerms, parse_step
from gossamer.model.request import EMPTY_PAYLOAD, Payload

_MAX_EXPIRES_AHEAD_SECONDS = 100 * 365 * 86400
"""A later time is most likely a mistake, such as milliseconds. `check_expires` words it as a hundred years."""

_SECONDS_OF_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


class RecrawlRule(msgspec.Struct, frozen=True, kw_only=True):
    """Options of pages whose URL matches. Fields as in the schema `crawl`."""

    match: str
    every: str = ""
    min: str = ""
    max: str = ""
    level: ChangeLevel | None = None
    keep: str = ""
    drop: str = ""
    window: str = ""

    def rule(self) -> RevisitRule:
        """Return the rule as workers get it. Raises RequestRejected."""
        if self.every and (self.min or self.max):
            raise RequestRejected("every contradicts min and max: omit one of them", field="recrawl.rules")
        shortest, longest = (
            _seconds(text) if text else 0.0 for text in (self.every or self.min, self.every or self.max)
        )
        if shortest and longest and shortest > longest:
            raise RequestRejected(f"min, {self.min}, is longer than max, {self.max}", field="recrawl.rules")
        return RevisitRule(
            match=self.match,
            shortest=shortest,
            longest=longest,
            level=self.level,
            keep=self.keep,
            drop=self.drop,
            window=self.window,
        )


_SHORTEST, _LONGEST = "1h", "30d"
"""Defaults of `min` and `max`, as in the schema."""


class RecrawlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Options by which a crawl is kept up to date. Fields as in the schema `crawl`; None: not given."""

    budget: str | None = None
    """VISITS/TIME."""
    min: str | None = None
    max: str | None = None
    rules: tuple[RecrawlRule, ...] | None = None
    unchanged: bool | None = None
    versions: int | None = None
    window: str | None = None
    time_zone: str | None = None
    ignore_feeds: bool | None = None

    def with_defaults(self, defaults: "RecrawlRequest") -> "RecrawlRequest":
        """Return these options, and those of the defaults that are not given here."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not None}
        return msgspec.structs.replace(defaults, **given)

    def options(self) -> RevisitOptions:
        """Return the options as workers get them. The texts must match the schema. Raises RequestRejected."""
        visits, seconds = 0, 0.0
        if self.budget:
            number, _, span = self.budget.partition("/")
            visits, seconds = int(number), _seconds(span if span[0].isdecimal() else f"1{span}")
        least, most = self.min or _SHORTEST, self.max or _LONGEST
        shortest, longest = _seconds(least), _seconds(most)
        if shortest > longest:
            raise RequestRejected(f"min, {least}, is longer than max, {most}", field="recrawl")
        return RevisitOptions(
            shortest=shortest,
            longest=longest,
            budget_visits=visits,
            budget_seconds=seconds,
            confirm=min(600.0, longest),
            rules=tuple(rule.rule() for rule in self.rules or ()),
            unchanged=bool(self.unchanged),
            versions=self.versions or 0,
            window=self.window or "",
            zone=self.time_zone or "UTC",
            ignore_feeds=bool(self.ignore_feeds),
        )


def _seconds(text: str) -> float:
    """Return the seconds of a time such as `90s`, `12h` or `7d`."""
    return float(int(text[:-1]) * _SECONDS_OF_UNITS[text[-1]])


class CrawlRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to fetch a URL and to follow its links. Fields as in the schema `crawl`; None: not given."""

    appid: str
    crawlid: str
    url: str
    spiderid: str = "link"
    wait_for_spider: bool = False
    """True: accept the request even if no worker has this spider yet."""
    priority: int = 1
    maxdepth: int = 0
    """0: fetch only the URL itself."""
    max_pages: int | None = None
    domain_max_pages: int | None = None
    allowed_domains: tuple[str, ...] | None = None
    allow_regex: tuple[str, ...] | None = None
    deny_regex: tuple[str, ...] | None = None
    deny_extensions: tuple[str, ...] | None = None
    """None: the default list; empty: no extension is denied."""
    expires: int = 0
    """Epoch seconds; 0: never."""
    useragent: str | None = None
    cookie: str | None = None
    attrs: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    headers_for: tuple[str, ...] | None = None
    """Domains that get the cookie and secret headers, besides the domain of the URL."""
    secret_headers: tuple[str, ...] | None = None
    """Names of further headers that are secret."""
    method: str = "GET"
    body: str | None = None
    body_base64: str | None = None
    proxy: str | None = None
    rate: str | None = None
    domain_concurrency: int | None = None
    order: Literal["fifo", "lifo"] = "fifo"
    query_order: Literal["significant", "ignored"] = "significant"
    pattern_max_pages: int | None = None
    path_repeats: int | None = None
    drop_parameters: tuple[str, ...] | None = None
    unique: tuple[str, ...] | None = None
    sitemaps: bool = False
    links: bool = False
    text: bool = False
    markdown: bool = False
    chunk: int | None = None
    text_in: Literal["records", "items", "both"] | None = None
    extract: dict[str, Any] | None = None
    """Extraction rules as they were sent; `rules` reads them."""
    assets: tuple[str, ...] | None = None
    max_assets: int | None = None
    ignore_robots: bool = False
    render: bool | Literal["never", "auto", "always"] = False
    """True, always: the URL and the links that it leads to are rendered in a browser."""
    render_match: tuple[str, ...] | None = None
    render_step: tuple[str, ...] | None = None
    """Steps as they were sent; `extract.render_steps` checks them."""
    render_screenshot: str = ""
    render_capture: tuple[str, ...] | None = None
    render_seconds: float | None = None
    render_quiet: float | None = None
    render_other_sites: OtherSites | None = None
    render_load: tuple[ExtraKind, ...] | None = None
    wait_for_browser: bool = False
    """True: accept the request even if no worker has a browser yet."""
    session: Literal["", "cookies"] = ""
    """cookies: cookies that a site sets are sent to it."""
    login: str = ""
    """Name of the login by which its pages are fetched."""
    timeout: float | None = None
    retries: int | None = None
    fresh: bool = False
    """True: if the crawl has finished, fetch everything again."""
    recrawl: RecrawlRequest | None = None
    """Present: the crawl is kept up to date."""

    @property
    def renders_all(self) -> bool:
        """True: the URL itself, and the links that are found, are rendered."""
        return self.render is True or self.render == "always"

    @property
    def renders(self) -> bool:
        """True: pages may be rendered."""
        return self.renders_all or self.render == "auto" or bool(self.render_match)

    def check_expires(self, *, now: float) -> None:
        """Raise RequestRejected if `expires` has passed or is more than a hundred years ahead. `now`: epoch seconds."""
        if self.expires and self.expires <= now:
            raise RequestRejected("this time has passed", field="expires")
        if self.expires > now + _MAX_EXPIRES_AHEAD_SECONDS:
            raise RequestRejected("must be within a hundred years", field="expires")

    def crawl(self, *, idle_seconds: float) -> Crawl:
        """Return the fields that belong to the whole crawl. A running crawl keeps those of its first request.
        `idle_seconds`: the operator's setting."""
        return Crawl(
            id=CrawlId(self.appid, self.crawlid),
            order=Order(self.order),
            max_pages=self.max_pages,
            rate=parse_rate(self.rate) if self.rate else None,
            concurrency=self.domain_concurrency,
            idle_seconds=idle_seconds,
            keep_all_failed=True,
            pool=login_pool(self.login) if self.login else SHARED_POOL,
        )

    def rules(self) -> Extraction | None:
        """Return the extraction rules; None: there are none. Raises BadExtraction."""
        return None if self.extract is None else read_extraction(self.extract)

    def terms(self, *, domain_max_pages: int | None, domain_max_pending: int | None) -> Terms:
        """Return the terms of this request and of all links that it leads to. `secrets_for` is left empty, because the
        caller fills it in (`with_secrets_for`). `domain_max_pages`, `domain_max_pending`: the operator's caps; None: no
        cap. Raises BadExtraction, and BadInput for what is no step."""
        limits = [pages for pages in (self.domain_max_pages, domain_max_pages) if pages]  # 0 in a request: no limit
        return Terms(
            maxdepth=self.maxdepth,
            domain_max_pages=min(limits, default=None),
            domain_max_pending=domain_max_pending,
            allowed_domains=self.allowed_domains or None,
            allow_regex=self.allow_regex or None,
            deny_regex=(*(self.deny_regex or ()), *(NEVER_FOLLOWED if self.session or self.login else ())) or None,
            deny_extensions=self.deny_extensions,
            expires=float(self.expires),
            useragent=self.useragent,
            cookie=self.cookie,
            headers=self.headers or None,
            secret_headers=tuple(sorted({name.lower() for name in self.secret_headers or ()})),
            attrs=self.attrs,
            sitemaps=self.sitemaps,
            links=self.links,
            ignore_robots=self.ignore_robots,
            proxy=self.proxy,
            timeout_seconds=self.timeout,
            retries=self.retries,
            query_order=QueryOrder(self.query_order),
            pattern_max_pages=self.pattern_max_pages,
            path_repeats=self.path_repeats,
            drop_parameters=self.drop_parameters or (),
            unique=self.unique or (),
            content=self.content(),
            extract=self.rules(),
            assets=read_kinds(self.assets or ()),
            max_assets=self.max_assets,
            render=self.renders_all,
            render_auto=self.render == "auto",
            render_match=self.render_match or (),
            render_steps=tuple(map(parse_step, self.render_step or ())),
            render_screenshot=self.render_screenshot,
            render_capture=self.render_capture or (),
            render_terms=self._render_terms(),
            recrawl=None if self.recrawl is None else self.recrawl.options(),
            session="login" if self.login else self.session,
        )

    def _render_terms(self) -> RenderTerms | None:
        """Return the rules of rendered pages; None: those of the workers."""
        found = RenderTerms(
            seconds=self.render_seconds or 0.0,
            quiet_seconds=self.render_quiet or 0.0,
            other_sites=self.render_other_sites or "",
            load=tuple(sorted(set(self.render_load or ()))),
        )
        return None if found == RenderTerms() else found

    def content(self) -> ContentOptions | None:
        """Return what is wanted of the main content of pages; None: nothing."""
        if not self.text and not self.markdown:
            return None
        return content_options_for(text=self.text, markdown=self.markdown, chunk=self.chunk, text_in=self.text_in)

    def payload(self) -> Payload:
        """Return method and body of the request for the URL itself."""
        body = base64.b64decode(self.body_base64) if self.body_base64 else (self.body or "").encode()
        return Payload(method=self.method, body=body) if body or self.method != "GET" else EMPTY_PAYLOAD


class ActionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for the backlog of a crawl or (without `crawlid`) of an application; or a request to stop a crawl."""

    uuid: str
    appid: str
    spiderid: str
    """Empty: all spiders. No message can contain that, only callers in this process."""
    action: Literal["stop", "info"]
    crawlid: str | None = None
    cursor: str = ""
    """Start of the page of crawls, in a request about an application."""


class StatsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for statistics of one kind."""

    uuid: str
    appid: str
    stats: str = "all"


class DomainRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to change a domain's budget, or to add it to or remove it from the blacklist."""

    uuid: str
    appid: str
    domain: str
    action: Literal["domain-update", "domain-remove", "blacklist-update", "blacklist-remove"]
    hits: int = 0
    """Requests in a window; 0: not given."""
    window: int = 0
    """Seconds; 0: not given."""
    scale: float | None = None
    """Factor for `hits`; 0 pauses the domain. None: not given."""


def parse_rate(text: str) -> Rate:
    """Return the rate for HITS/SECONDS, or HITS a second. The text must match the pattern of `rate` in the schema
    `crawl`: it is not checked here."""
    hits, _, seconds = text.partition("/")
    return Rate(hits=int(hits), window_seconds=float(seconds or 1))
