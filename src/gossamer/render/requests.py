"""Answers what a page asks for while a browser builds it: by this program's own HTTP client, never by the browser.

Each request passes the kinds and hosts that are loaded, the limits of the page, robots.txt, the cache, and then the
client with its address guard. So the crawl's headers, proxies and certificates hold here as everywhere.
"""

import asyncio
import base64
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from http.client import responses
from typing import Any

import msgspec

from gossamer.errors import BadInput, FetchError
from gossamer.fetch.backend import FetchBackend, PageLoad
from gossamer.fetch.exchange import FetchRequest, FetchResponse
from gossamer.fetch.request import OWNED
from gossamer.model.json_codec import encode_value
from gossamer.model.record import CapturedAnswer, FailedLoad
from gossamer.model.rendering import ExtraKind, OtherSites, RenderTerms
from gossamer.policy.urls import host, registered_domain
from gossamer.render.devtools import DevTools
from gossamer.render.freshness import fresh_seconds
from gossamer.render.trackers import is_tracker

LOADED_KINDS = frozenset({"Document", "Stylesheet", "Script", "XHR", "Fetch", "Other"})
"""Kinds of requests that build the document. Images, media, fonts, pings, event streams and the like do not."""
_EXTRA_KINDS = {"images": "Image", "fonts": "Font", "media": "Media"}
"""Kinds that are also loaded where they are asked for, from all sites that are permitted."""
_SHOWN_KINDS = frozenset({"images", "fonts"})
"""Those of a screenshot."""
_FOREIGN_KINDS = frozenset({"Stylesheet", "Script", "XHR", "Fetch"})
"""Kinds that are also loaded from other sites, where these are permitted: what a page is built from, but no frames."""
_NOT_PASSED_ON = frozenset(
    {"connection", "content-encoding", "content-length", "keep-alive", "trailer", "transfer-encoding", "upgrade"}
)
"""Response headers that describe the message as it was sent, not the decoded body that the browser gets."""
_NO_HEADER = re.compile(r"[\0\r\n]")
"""Characters that would make one header into two."""
_OF_CRAWL = frozenset({"user-agent", "accept-language"})
"""Headers that the browser would send by itself, and that are the crawl's own instead."""

_DATA_KINDS = frozenset({"XHR", "Fetch"})
"""Kinds of requests whose answers may be captured."""
_MOST_NOTED = 20
"""Failed requests that a record names. More make records larger."""
_LONGEST_URL = 500
_DEEPER = 20
"""Arrays and objects around an answer that can be written, at least as many as in a record."""
_MOST_CAPTURED = 100
_CAPTURED_BYTES = 4 * 1024 * 1024
"""Bytes of captured answers of one page, in base64. They are in its record."""
_AT_ONCE = 16
"""Requests of one page that are in progress at once, to all hosts. Their responses may exceed the bytes of a page, so
more let a hostile page take more memory."""


class LoadLimits(msgspec.Struct, frozen=True):
    """Bounds on what one page loads."""

    requests: int = 200
    """Requests that are sent for a page, besides its own."""
    bytes: int = 20 * 1024 * 1024
    """Bytes that are received for them, and that their bodies may have. Requests that are in progress when it is
    reached are the last ones."""
    host_requests: int = 4
    """Requests that are in progress at once to one host, for all pages."""
    cache_bytes: int = 32 * 1024 * 1024
    """Memory of the cache."""
    other_sites: OtherSites = "scripts"
    """Requests to other registered domains than the page's."""
    load: frozenset[ExtraKind] = frozenset()
    """Kinds that all pages load beside those that build the document."""


class CachedAnswer(msgspec.Struct, frozen=True):
    """Response in the form in which the browser gets it."""

    status: int
    phrase: str
    """Reason phrase. A browser refuses statuses without one that it does not know."""
    headers: str
    """Bytes of the headers in base64, each of which ends with a zero byte."""
    body: str
    """In base64."""
    until: float = 0.0
    """Monotonic time until which it may be used again. 0: it may not."""

    @property
    def size(self) -> int:
        """Memory that it takes, approximately."""
        return len(self.body) + len(self.headers) + 1024


def _not_counted(host: str, seconds: float | None) -> None:
    """Count nothing."""


class PageLoader:
    """Sends the requests of all pages of a worker, and has the cache that they share."""

    def __init__(
        self, http: FetchBackend, limits: LoadLimits, on_load: Callable[[str, float | None], None] | None = None
    ) -> None:
        """`on_load` is called with the host of each request that is sent, and the seconds of its response; None: it
        failed."""
        self.http = http
        self.limits = limits
        self.on_load = on_load or _not_counted
        self._cache: OrderedDict[tuple[str, str, str], CachedAnswer] = OrderedDict()
        self._cached_bytes = 0
        self._hosts: dict[str, tuple[asyncio.Semaphore, list[int]]] = {}

    def cached(self, crawl: str, origin: str, url: str) -> CachedAnswer | None:
        """Return a response that may be used again. `origin`: the request's header; empty: it has none."""
        answer = self._cache.get((crawl, origin, url))
        if answer is None or answer.until < time.monotonic():
            return None
        self._cache.move_to_end((crawl, origin, url))
        return answer

    def keep(self, crawl: str, origin: str, url: str, answer: CachedAnswer) -> None:
        """Keep a response, in place of those that were not used for longest."""
        key = (crawl, origin, url)
        if old := self._cache.pop(key, None):
            self._cached_bytes -= old.size
        if not answer.until or answer.size > self.limits.cache_bytes // 4:
            return
        self._cache[key] = answer
        self._cached_bytes += answer.size
        while self._cached_bytes > self.limits.cache_bytes:
            _, oldest = self._cache.popitem(last=False)
            self._cached_bytes -= oldest.size

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait until another request to this host may be sent."""
        slots, users = self._hosts.setdefault(name, (asyncio.Semaphore(self.limits.host_requests), [0]))
        users[0] += 1
        try:
            async with slots:
                yield
        finally:
            users[0] -= 1
            if not users[0]:
                self._hosts.pop(name, None)


class PageRequests:
    """Requests of one page while it is built."""

    def __init__(self, devtools: DevTools, session: str, load: PageLoad, loader: PageLoader) -> None:
        self._devtools = devtools
        self._session = session
        self._load = load
        self._loader = loader
        terms = load.terms or RenderTerms()
        self._other_sites = terms.other_sites or loader.limits.other_sites
        extra = loader.limits.load.union(terms.load, _SHOWN_KINDS if load.screenshot else ())
        self._extra_kinds = frozenset(kind for name, kind in _EXTRA_KINDS.items() if name in extra)
        self._loads_trackers = "trackers" in extra
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self.sent = 0
        self.refused = 0
        self.cached = 0
        self.bytes = 0
        self._uploaded = 0
        """Bytes of the bodies of its requests."""
        self.failed: list[FailedLoad] = []
        self.answers: list[CapturedAnswer] = []
        self.answers_left_out = 0
        self._captured_bytes = 0

    def on_paused(self, event: dict[str, Any]) -> None:
        """Answer a request of the page. The answer may take a while; nothing waits for it here."""
        self._start(self._answer(event))

    def on_document(self, event: dict[str, Any], response: FetchResponse) -> None:
        """Answer the request of the page itself."""
        self._start(self._fulfil(event, answer_of(response)))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @property
    def in_progress(self) -> int:
        """Requests that are being answered."""
        return len(self._tasks)

    async def idle(self, seconds: float) -> bool:
        """Wait until no request is in progress, at most so long. Returns whether none is."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        return not self._tasks

    async def close(self) -> None:
        """Cancel the requests in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _answer(self, event: dict[str, Any]) -> None:
        """Answer one request of the page."""
        url, method = event["request"]["url"], event["request"]["method"]
        if method == "OPTIONS" and _header(event, "access-control-request-method"):
            await self._fulfil(event, _preflight(event))
            return
        size = _body_bytes(event)
        if not self._may_load(event, url) or (size and self._uploaded + size > self._loader.limits.bytes):
            self._refuse(event, "BlockedByClient")
            return
        self._uploaded += size
        # A response may permit a single origin to read it.
        origin = _header(event, "origin")
        if method == "GET" and (known := self._loader.cached(self._load.sharing, origin, url)):
            self.cached += 1
            self._capture(event, known)
            await self._fulfil(event, known)
            return
        self.sent += 1  # before the waits below: thousands of requests may come in one moment
        name = host(url)
        try:
            request = self._request(event, url, method)
            if not await self._load.allows(request):
                self.sent -= 1
                self._refuse(event, "BlockedByClient")
                return
            async with self._loader.turn(name), self._turns:
                if self.bytes >= self._loader.limits.bytes:  # those that came before have taken the rest
                    self.sent -= 1
                    self._refuse(event, "BlockedByClient")
                    return
                fetched = await self._loader.http.fetch(request)
                self.bytes += fetched.received_bytes
                self._loader.on_load(name, fetched.timings.total)
                if self._load.on_response is not None:
                    self._load.on_response(url, fetched)
                # Before the turn ends, so that few responses at once wait for a browser that is slow.
                await self._devtools.wait_for_room()
        except (FetchError, BadInput) as error:
            self._loader.on_load(name, None)
            self._note_failure(url, error.kind if isinstance(error, FetchError) else "bad_request")
            self._refuse(event, "Failed")
            return
        if fetched.status >= 400:
            self._note_failure(url, f"http_{fetched.status}")
        answer = answer_of(fetched, until=_until(method, fetched))
        if answer.until:
            self._loader.keep(self._load.sharing, origin, url, _to_keep(answer, fetched))
        self._capture(event, answer)
        await self._fulfil(event, answer)

    def _note_failure(self, url: str, reason: str) -> None:
        """Note a request that failed, for the record."""
        if len(self.failed) < _MOST_NOTED:
            self.failed.append(FailedLoad(url=url[:_LONGEST_URL], reason=reason))

    def _capture(self, event: dict[str, Any], answer: CachedAnswer) -> None:
        """Keep an answer in JSON that the crawl wants."""
        url = event["request"]["url"]
        if self._load.captures is None or event["resourceType"] not in _DATA_KINDS or not self._load.captures(url):
            return
        size = self._captured_bytes + len(answer.body)
        if size > _CAPTURED_BYTES or len(self.answers) >= _MOST_CAPTURED:
            self.answers_left_out += 1
            return
        try:
            data = msgspec.json.decode(base64.b64decode(answer.body))
            nested = data
            for _ in range(_DEEPER):
                nested = [nested]
            encode_value(nested)  # a record that cannot be written would be lost with its page
        except (ValueError, OverflowError, RecursionError):
            self.answers_left_out += 1
            return
        self._captured_bytes = size
        method = event["request"]["method"]
        self.answers.append(CapturedAnswer(url=url, method=method, status=answer.status, data=data))

    def _may_load(self, event: dict[str, Any], url: str) -> bool:
        """Return whether a request is of a kind, to a host and within the limits that are loaded."""
        limits = self._loader.limits
        kind = event["resourceType"]
        is_extra = kind in self._extra_kinds
        if not url.startswith(("https://", "http://")) or not (kind in LOADED_KINDS or is_extra):
            return False
        if self.sent >= limits.requests or self.bytes >= limits.bytes:
            return False
        name = host(url)
        if registered_domain(name) == self._load.site or self._other_sites == "all":
            return True
        if self._other_sites == "none" or not (kind in _FOREIGN_KINDS or is_extra):
            return False
        return self._loads_trackers or not is_tracker(name)

    def _request(self, event: dict[str, Any], url: str, method: str) -> FetchRequest:
        """Return a request of the page as it is sent: its own headers, and those that the crawl has for the URL."""
        request = self._load.request_for(url)
        of_crawl = {name.lower(): (name, value) for name, value in request.headers}
        merged: dict[str, tuple[str, str]] = {}
        for name, value in event["request"]["headers"].items():
            lower = name.lower()
            if lower not in OWNED and lower not in _OF_CRAWL and not lower.startswith("sec-ch-"):
                merged[lower] = (name, value)
        for lower, pair in of_crawl.items():
            if lower == "cookie" and lower in merged:
                merge = self._load.merge_cookies or _joined
                merged[lower] = ("Cookie", merge(url, merged[lower][1], pair[1]))
            elif lower not in merged or lower != "accept":
                merged[lower] = pair
        request.headers = tuple(merged.values())
        request.method = method
        request.body = _body(event) if method not in ("GET", "HEAD") else b""
        return request

    def _refuse(self, event: dict[str, Any], reason: str) -> None:
        self.refused += 1
        self._devtools.send(
            "Fetch.failRequest", session=self._session, requestId=event["requestId"], errorReason=reason
        )

    async def _fulfil(self, event: dict[str, Any], answer: CachedAnswer) -> None:
        """Hand a response to the browser, once it has read most of those before."""
        await self._devtools.wait_for_room()
        self._devtools.send(
            "Fetch.fulfillRequest",
            session=self._session,
            requestId=event["requestId"],
            responseCode=answer.status,
            responsePhrase=answer.phrase,
            binaryResponseHeaders=answer.headers,
            body=answer.body,
        )


def _joined(url: str, of_page: str, given: str) -> str:
    return f"{of_page}; {given}"


def answer_of(fetched: FetchResponse, *, until: float = 0.0) -> CachedAnswer:
    """Return a response in the form in which the browser gets it."""
    headers = _encoded(pair for pair in fetched.headers if pair[0].lower() not in _NOT_PASSED_ON)
    return CachedAnswer(fetched.status, _phrase(fetched), headers, base64.b64encode(fetched.body).decode(), until)


def _to_keep(answer: CachedAnswer, fetched: FetchResponse) -> CachedAnswer:
    """Return the answer without the cookies of its response: used again, it would replace newer ones."""
    left_out = _NOT_PASSED_ON | {"set-cookie"}
    headers = _encoded(pair for pair in fetched.headers if pair[0].lower() not in left_out)
    return msgspec.structs.replace(answer, headers=headers)


def _encoded(headers: Iterable[tuple[str, str]]) -> str:
    """Return headers with the bytes that the server has sent."""
    lines = (f"{name}: {value}" for name, value in headers)
    written = "".join(f"{line}\0" for line in lines if not _NO_HEADER.search(line))
    return base64.b64encode(written.encode("latin-1", "replace")).decode()


def _phrase(fetched: FetchResponse) -> str:
    """Return the reason phrase of a response. HTTP/2 has none, and many statuses have none of their own."""
    if fetched.reason.isascii() and fetched.reason.isprintable() and fetched.reason.strip():
        return fetched.reason
    return responses.get(fetched.status) or "Unknown"


def _until(method: str, fetched: FetchResponse) -> float:
    """Return the monotonic time until which a response may be used again; 0: it may not."""
    if method != "GET" or fetched.truncated:
        return 0.0
    seconds = fresh_seconds(fetched.status, fetched.headers, now=time.time())
    return time.monotonic() + seconds if seconds else 0.0


def _preflight(event: dict[str, Any]) -> CachedAnswer:
    """Return the answer to the question whether another host permits a request: the request itself finds out."""
    allowed = {
        "Access-Control-Allow-Origin": _header(event, "origin") or "*",
        "Access-Control-Allow-Credentials": "true",
        "Access-Control-Allow-Methods": _header(event, "access-control-request-method"),
        "Access-Control-Allow-Headers": _header(event, "access-control-request-headers"),
        "Access-Control-Max-Age": "600",
    }
    return CachedAnswer(204, "No Content", _encoded(pair for pair in allowed.items() if pair[1]), "")


def _header(event: dict[str, Any], name: str) -> str:
    """Return a header of a request of the page; empty: it has none."""
    return next((value for key, value in event["request"]["headers"].items() if key.lower() == name), "")


def _body_bytes(event: dict[str, Any]) -> int:
    """Return the size of the body of a request of the page, approximately. It is not decoded yet."""
    request = event["request"]
    entries = sum(len(entry.get("bytes", "")) for entry in request.get("postDataEntries", ())) * 3 // 4
    return max(entries, len(request.get("postData", "")))


def _body(event: dict[str, Any]) -> bytes:
    """Return the body of a request of the page."""
    request = event["request"]
    if entries := request.get("postDataEntries"):
        return b"".join(base64.b64decode(entry.get("bytes", "")) for entry in entries)
    return str(request.get("postData", "")).encode()
