"""Incremental runs of a Scrapy project (GOSSAMER_FRESH): only pages that have changed give items.

A page is known by the project's fingerprint, with the callback that handled it. A visit is one request of a page in
this run. A known page is asked for conditionally (RFC 9110, section 13). If it is as it was, its callback does not run;
where the callback yielded requests, it runs all the same, with the stored response after a 304, because they may lead
to pages that have changed, and only its items are dropped.

Fixed: a page is stored only after all of its items have left this process, and before its lease is settled. A process
that is killed in between leaves the lease; where the page was stored, the next process drops only what was delivered.
"""

import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from itemadapter import ItemAdapter
from scrapy import Request, Spider, signals
from scrapy.crawler import Crawler
from scrapy.http import Headers, HtmlResponse, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings

from gossamer.errors import BadInput, SinkError
from gossamer.fresh.validators import conditional_headers, packed_date, validators
from gossamer.model.request import Outcome
from gossamer.policy.urls import fingerprint
from gossamer.scrapy.buffered_feeds import FeedFiles
from gossamer.scrapy.entries import Unstorable, callback_identity, faster_fingerprinter
from gossamer.scrapy.fresh_index import FreshIndex, KnownPage, packed_response, unpacked_response
from gossamer.scrapy.leasing import CURRENT_LEASE, ActiveLease
from gossamer.scrapy.proxies import setting

log = logging.getLogger(__name__)

_META_KEY: Final = "fresh"
"""Key of a request's meta; False: the page is handled as without GOSSAMER_FRESH. Projects write it: fixed."""
_OWN_CONDITIONS: Final = (
    "If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since", "If-Range", "Range",
)  # fmt: skip
"""Headers by which a request of the project is conditional, or wants a part."""
_NOT_STORED: Final = frozenset(("set-cookie", "set-cookie2", "connection", "transfer-encoding", "keep-alive"))
"""Headers that hold for one answer only. A stored cookie would replace a newer one."""
_OF_THE_BODY: Final = frozenset(("content-length", "content-encoding", "content-type", "content-range"))
"""Headers that a 304 does not change (RFC 9111, section 3.2)."""
_MOST_BYTES: Final = 2 * 1024 * 1024
"""Largest body that is stored."""
_YOUNG_SECONDS: Final = 2
"""Age in seconds from which a date tells changes apart: a page that is younger may change again in the same second
(RFC 9110, section 8.8.2.2)."""
_GONE: Final = ("http_404", "http_410")
_INCOMPLETE: Final = frozenset(("dataloss", "partial"))
"""Flags of responses whose body is not whole."""
_LEVELS: Final = ("bytes", "text", "items")


@dataclass(frozen=True, slots=True)
class FreshOptions:
    """Settings of incremental runs."""

    index: str
    """Address of the index. Empty: a file in the data directory."""
    level: str
    handles_all: bool
    """True: all pages are handled as if they were not known."""


def read_fresh_options(settings: BaseSettings) -> FreshOptions | None:
    """Read a project's settings. None: no incremental runs. Raises BadInput, with the setting's name."""
    value = str(setting(settings, "GOSSAMER_FRESH")).strip().lower()
    if value in ("", "0", "false", "no"):
        return None
    if value not in ("1", "true", "yes", "all"):
        raise BadInput(f"GOSSAMER_FRESH: {value!r:.40} is none of True, False and all")
    level = str(setting(settings, "GOSSAMER_FRESH_LEVEL")).strip().lower()
    if level not in _LEVELS:
        raise BadInput(f"GOSSAMER_FRESH_LEVEL: {level!r:.40} is none of bytes, text and items")
    if settings.getbool("HTTPCACHE_ENABLED"):
        raise BadInput(
            "GOSSAMER_FRESH with HTTPCACHE_ENABLED: answers from Scrapy's cache would hide changes. Turn one off"
        )
    return FreshOptions(str(setting(settings, "GOSSAMER_FRESH_INDEX") or ""), level, value == "all")


@dataclass(slots=True, eq=False)
class PageVisit:
    """One request of a page, from before it is sent until its items are through the pipelines."""

    key: int
    callback: int
    stored: KnownPage | None
    """The page in the index."""
    known: KnownPage | None
    """That page, if it can be compared with what this visit finds."""
    conditions: list[str] = field(default_factory=list)
    """Headers that were added to the request."""
    is_not_modified: bool = False
    headers: Headers | None = None
    """Headers of the answer, as they came."""
    body: bytes = b""
    """Body of a response with the status 200, as it came."""
    content: int | None = None
    """Hash of the content that the callback gets. None: it is no page that is compared."""
    drops_items: bool = False
    """True: the page is as it was, and its callback runs for its requests."""
    held: list[Any] | None = None
    """Items that wait until the callback has ended, because they tell whether the page has changed."""
    is_skipped: bool = False
    """True: the page is as it was, and its callback does not run."""
    is_complete: bool = False
    """True once the callback has yielded all it yields."""
    has_requests: bool = False
    asks_again: bool = False
    """True: the callback yielded a request of the same page, as one does that was refused with the status 200."""
    has_items: bool = False
    has_failed: bool = False
    """True: an item has failed in a pipeline."""


class FreshVisits:
    """Visits of one process: a downloader middleware closest to the downloader, and a spider middleware closest to the
    spider."""

    def __init__(
        self,
        crawler: Crawler,
        spider: Spider,
        options: FreshOptions,
        index: FreshIndex,
        feeds: FeedFiles,
        *,
        active: Callable[[Request], ActiveLease | None],
        may_render: Callable[[Request], bool],
    ) -> None:
        """`active` returns the lease of a request; None: it was not leased. `may_render` returns whether a browser may
        build its page."""
        assert crawler.stats is not None
        self._spider = spider
        self._stats = crawler.stats
        self._options = options
        self._index = index
        self._active = active
        self._may_render = may_render
        self._fingerprinter = faster_fingerprinter(crawler.request_fingerprinter)
        self._holds_items = feeds.has_late_feeds
        self._held: list[tuple[int, KnownPage | None]] = []
        """Pages whose items are in feeds that are written at the end."""
        crawler.signals.connect(self._on_item_error, signal=signals.item_error)
        if self._holds_items:
            crawler.signals.connect(self._on_feeds_closed, signal=signals.feed_exporter_closed)

    async def close(self) -> None:
        """Close the index."""
        await self._index.close()

    # --- the request --------------------------------------------------------------------------------------------------

    async def look_up(self, request: Request) -> None:
        """Look up the page of a leased request, before all downloader middlewares."""
        active = self._active(request)
        if active is None:
            return
        active.visit = None
        if request.method != "GET" or request.meta.get(_META_KEY) is False:
            return
        try:
            callback = fingerprint(callback_identity(request), seed=0)
        except Unstorable:
            return
        own = self._fingerprinter.fingerprint(request)
        key = fingerprint(self._spider.name.encode() + b"\0" + own, seed=0)
        stored = await self._index.look_up(key)
        is_comparable = stored is not None and stored.callback == callback and not self._options.handles_all
        active.visit = PageVisit(key, callback, stored, stored if is_comparable else None)

    def process_request(self, request: Request) -> None:
        """Make the request of a known page conditional."""
        visit = self._visit(request)
        if visit is None or visit.known is None or (visit.known.has_requests and not visit.known.response):
            return
        if self._may_render(request) or any(name in request.headers for name in _OWN_CONDITIONS):
            return
        for name, value in conditional_headers(visit.known.etag, visit.known.modified).items():
            request.headers[name] = value
            visit.conditions.append(name)

    def process_response(self, request: Request, response: Response) -> Response:
        """Take note of what came; put the stored response in the place of a 304 if the callback has to run."""
        visit = self._visit(request)
        if visit is None:
            return response
        self._remove_conditions(request, visit)
        visit.headers = response.headers.copy()  # HttpCompressionMiddleware changes the response's own
        if response.status == 200:
            visit.body = response.body
        elif response.status == 304 and visit.conditions and visit.known is not None:
            visit.is_not_modified = True
            self._stats.inc_value("gossamer/fresh/not_modified")
            if visit.known.response:
                return _renewed(visit.known.response, response)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        """Remove the conditions, which a retry would copy."""
        if (visit := self._visit(request)) is not None:
            self._remove_conditions(request, visit)

    def _remove_conditions(self, request: Request, visit: PageVisit) -> None:
        """Take the conditions off the request: a redirect, which has the headers of the request, is another page."""
        for name in visit.conditions:
            request.headers.pop(name, None)

    def _visit(self, request: Request | None) -> PageVisit | None:
        active = self._active(request) if request is not None else None
        return None if active is None else active.visit

    # --- the response -------------------------------------------------------------------------------------------------

    def skips(self, active: ActiveLease, result: object) -> bool:
        """Compare the page with what is known. Return whether its callback is not to run."""
        visit = active.visit
        if visit is None or not isinstance(result, Response):
            return False
        known = visit.known
        if visit.is_not_modified and result.status == 304:
            visit.drops_items = visit.is_skipped = True
        elif result.status == 200 and _INCOMPLETE.isdisjoint(result.flags):
            if self._options.level == "items" and not visit.is_not_modified:
                visit.held = []
                return False
            visit.content = self._content(result)
            if known is not None and (visit.is_not_modified or known.content == visit.content):
                visit.drops_items, visit.is_skipped = True, not known.has_requests
        else:
            return False
        self._count(visit)
        return visit.is_skipped

    def _count(self, visit: PageVisit) -> None:
        """Count a page that was compared."""
        change = "unchanged" if visit.drops_items else "new" if visit.stored is None else "changed"
        self._stats.inc_value(f"gossamer/fresh/{change}")

    def _content(self, response: Response) -> int:
        """Return the hash of the content that counts."""
        if self._options.level == "text" and isinstance(response, HtmlResponse):
            from gossamer.fresh.main_text import main_text  # its parser is needed by few projects

            if text := main_text(response.body, response.encoding):
                return fingerprint(text, seed=0)
        return fingerprint(response.body, seed=0)

    # --- what the callback yields -------------------------------------------------------------------------------------

    def process_spider_output(self, response: Response, result: Iterable[Any]) -> Iterator[Any]:
        visit = self._handled(response)
        try:
            for one in result:
                if visit is None or self._passes(visit, one, response):
                    yield one
        except Exception:
            yield from _failed(visit)
            raise
        if visit is not None:
            for one in self._compared(visit):
                yield one
            visit.is_complete = True

    async def process_spider_output_async(self, response: Response, result: AsyncIterator[Any]) -> AsyncIterator[Any]:
        visit = self._handled(response)
        try:
            async for one in result:
                if visit is None or self._passes(visit, one, response):
                    yield one
        except Exception:
            for one in _failed(visit):
                yield one
            raise
        if visit is not None:
            for one in self._compared(visit):
                yield one
            visit.is_complete = True

    def _handled(self, response: Response) -> PageVisit | None:
        """Return the visit whose response the callback handles. None for a request that was not leased."""
        active = CURRENT_LEASE.get()
        return active.visit if active is not None and response.request is active.request else None

    def _passes(self, visit: PageVisit, one: Any, response: Response) -> bool:
        """Return whether an object that the callback yields goes on."""
        if isinstance(one, Request):
            visit.has_requests = True
            visit.asks_again = visit.asks_again or (one.dont_filter and one.url == response.url)
        elif one is not None:
            if visit.drops_items:
                self._stats.inc_value("gossamer/fresh/items_dropped")
                return False
            if visit.held is not None:
                visit.held.append(one)
                return False
            visit.has_items = True
        return True

    def _compared(self, visit: PageVisit) -> Sequence[Any]:
        """Compare the items that wait with those of the visit before. Return those that go on: all, or none."""
        held, visit.held = visit.held, None
        if held is None:
            return ()
        visit.content = items_hash(held)
        visit.drops_items = visit.known is not None and visit.known.content == visit.content
        self._count(visit)
        if visit.drops_items:
            self._stats.inc_value("gossamer/fresh/items_dropped", len(held))
            return ()
        visit.has_items = bool(held)
        return held

    def _on_item_error(self, response: Response | None) -> None:
        active = CURRENT_LEASE.get()
        visits = [active.visit if active is not None else None, self._visit(response.request if response else None)]
        for visit in visits:
            if visit is not None:
                visit.has_failed = True

    # --- the index ----------------------------------------------------------------------------------------------------

    async def settle(self, active: ActiveLease) -> None:
        """Store the page of a lease whose items have left this process, before the lease is settled."""
        visit = active.visit
        if visit is None:
            return
        if active.outcome is Outcome.FAILED and active.reason in _GONE and visit.stored is not None:
            await self._index.store(visit.key, None)  # if it comes back, it is new
        visit.has_requests = visit.has_requests or bool(active.known_children)
        if active.outcome is not Outcome.FETCHED or visit.has_failed or not (visit.is_skipped or visit.is_complete):
            return
        if visit.asks_again and not visit.has_items:
            return
        page = _page(visit)
        if page is None or page == visit.stored:
            return
        if visit.has_items and self._holds_items:
            self._held.append((visit.key, page._replace(response=b"")))
        else:
            await self._index.store(visit.key, page)

    def _on_feeds_closed(self) -> None:
        """Store the pages whose items are in feeds that are written at the end."""
        failed = [name for name in self._stats.get_stats() if name.startswith("feedexport/failed_count/")]
        held, self._held = self._held, []
        if not held:
            return
        if failed:
            log.error("A feed could not be written, so the next run gives the items of %d pages again.", len(held))
            return
        try:
            self._index.store_now(held)
        except (BadInput, SinkError) as error:
            log.error("%s. The next run gives the items of %d pages again.", error, len(held))


def _failed(visit: PageVisit | None) -> Sequence[Any]:
    """Return the items that wait for the end of a callback that has failed. They go on, and the page is not stored."""
    held = visit.held if visit is not None else None
    if visit is None or held is None:
        return ()
    visit.held, visit.has_items = None, bool(held)
    return held


def items_hash(items: Sequence[Any]) -> int:
    """Return the hash of items in their order. Objects in them count by their text, sets whatever their order."""

    def text(value: Any) -> Any:
        return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)

    fields = [ItemAdapter(item).asdict() if ItemAdapter.is_item(item) else item for item in items]
    try:
        written = json.dumps(fields, sort_keys=True, default=text)
    except (TypeError, ValueError):  # keys of several types; an object that contains itself
        written = repr(fields)
    return fingerprint(written, seed=0)


def _renewed(stored: bytes, response: Response) -> Response:
    """Return a stored response with the headers of the 304 that confirmed it (RFC 9111, section 4.3.4)."""
    lines, body = unpacked_response(stored)
    headers = Headers({name: [value.encode("latin-1") for value in values] for name, values in lines})
    for name, values in response.headers.items():
        if name.decode("latin-1").lower() not in _OF_THE_BODY:
            headers[name] = values
    kind = responsetypes.from_args(headers=headers, url=response.url, body=body)
    return kind(
        response.url,
        status=200,
        headers=headers,
        body=body,
        flags=[*response.flags, "not_modified"],
        request=response.request,
        certificate=response.certificate,
        ip_address=response.ip_address,
        protocol=response.protocol,
    )


def _page(visit: PageVisit) -> KnownPage | None:
    """Return the page as it is to be stored. None: as it was."""
    known, headers = visit.known, visit.headers
    lines = (
        []
        if headers is None
        else [
            (name.decode("latin-1"), [value.decode("latin-1") for value in values]) for name, values in headers.items()
        ]
    )
    etag, modified = kept_validators(dict(lines))
    if visit.is_not_modified and known is not None:
        return known._replace(
            has_requests=visit.has_requests, etag=etag or known.etag, modified=modified or known.modified
        )
    if visit.content is None:
        return None
    if visit.stored is not None and not (visit.has_items or visit.has_requests or visit.drops_items):
        return None  # it may be a refusal with status 200: the page is compared with what it was before
    response = b""
    if visit.has_requests and (etag or modified) and len(visit.body) <= _MOST_BYTES:
        response = packed_response([line for line in lines if line[0].lower() not in _NOT_STORED], visit.body)
    return KnownPage(visit.callback, visit.content, visit.has_requests, etag, modified, response)


def kept_validators(headers: dict[str, list[str]]) -> tuple[str, str]:
    """Return ETag and Last-Modified of a response; empty where it has none that may be stored and is certain to tell
    changes apart."""
    lower = {name.lower(): ",".join(values) for name, values in headers.items()}
    if "no-store" in lower.get("cache-control", "").lower():
        return "", ""
    etag, modified = validators(headers)
    if etag or not modified:
        return etag, modified
    varies = {name.strip().lower() for name in lower.get("vary", "").split(",")} - {"", "accept-encoding"}
    date, last = packed_date(lower.get("date", "")), packed_date(modified)
    is_young = isinstance(date, int) and isinstance(last, int) and 0 < date < last + _YOUNG_SECONDS
    # The date may be that of another variant of the page, for other cookies or languages.
    return "", "" if varies or is_young else modified


def index_address(options: FreshOptions, data_dir: str, token: str) -> str:
    """Return the address of a crawl's index."""
    return options.index or os.path.join(data_dir, "scrapy", f"{token}.sqlite")
