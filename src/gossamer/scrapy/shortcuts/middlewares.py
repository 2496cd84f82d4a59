"""The downloader middlewares of a crawler: those of Scrapy are called only for requests that they change.

For each of Scrapy's own middlewares there is a step: a function that does all that the middleware would do for this
request, or returns False, and then the middleware is called. A middleware of the project is always called.

Fixed: requests, responses, statistics and cookie jars are afterwards as the middleware would have left them.
"""

import re
from collections import deque
from collections.abc import Callable, Coroutine
from functools import lru_cache
from typing import Any, Final

from scrapy import Request
from scrapy.core.downloader.middleware import DownloaderMiddlewareManager
from scrapy.downloadermiddlewares import httpcompression
from scrapy.downloadermiddlewares.cookies import CookiesMiddleware
from scrapy.downloadermiddlewares.defaultheaders import DefaultHeadersMiddleware
from scrapy.downloadermiddlewares.downloadtimeout import DownloadTimeoutMiddleware
from scrapy.downloadermiddlewares.httpauth import HttpAuthMiddleware
from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
from scrapy.downloadermiddlewares.redirect import MetaRefreshMiddleware, RedirectMiddleware
from scrapy.downloadermiddlewares.retry import RetryMiddleware
from scrapy.downloadermiddlewares.stats import DownloaderStats, get_status_size
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware
from scrapy.http import Headers, Response
from scrapy.utils.defer import ensure_awaitable
from scrapy.utils.python import global_object_name

from gossamer.scrapy.downloader import SharedThrottle
from gossamer.scrapy.shortcuts.parts import counter_of, is_stock_method, owns_none_of, without_decorator

RequestStep = Callable[[Request], bool]
ResponseStep = Callable[[Request, Response], bool]
"""Both return whether the middleware has nothing left to do, and lets the request or response pass as it is."""

Download = Callable[[Request], Coroutine[Any, Any, Response]]

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
"""Statuses that RedirectMiddleware follows: Scrapy's."""
_CREDENTIALS: Final = ("http_user", "http_pass")

# A URL of which request_httprepr writes the path and query as they are.
_PLAIN_URL: Final = re.compile(r"https?://([a-z0-9.-]+)(?::[0-9]+)?(/(?!/)[^?#;]*(?:\?[^#;]+)?)(?:#.*)?")


class Middlewares:
    """Passes requests and responses through the downloader middlewares of a crawler."""

    def __init__(self, manager: DownloaderMiddlewareManager) -> None:
        self._manager = manager
        self._seen_requests: deque[Any] = deque()
        self._seen_responses: deque[Any] = deque()
        self._requests: list[tuple[RequestStep | None, Any]] = []
        self._responses: list[tuple[ResponseStep | None, Any]] = []
        self._scheduling: dict[Any, RequestStep] = {}
        """Steps of OffsiteMiddleware's receiver of a signal."""

    async def download(self, request: Request, download: Download) -> Response | Request:
        """Do what `DownloaderMiddlewareManager.download_async` does."""
        manager = self._manager
        if manager.methods["process_request"] != self._seen_requests:
            self._prepare()
        if manager.methods["process_response"] != self._seen_responses:
            self._prepare()
        try:
            result: Response | Request | None = None
            for step, method in self._requests:
                if step is None or not step(request):
                    result = await ensure_awaitable(
                        manager._handle_mw_method(method, request=request), _warn=global_object_name(method)
                    )
                    if result is not None:
                        break
            if result is None:
                result = await download(request)
            elif not isinstance(result, Response | Request):
                name = type(result).__name__
                raise _invalid(f"Middleware {method.__qualname__} must return None, Response or Request", name)
        except Exception as error:
            await process_pending_io()
            result = await manager._process_exception(error, request)
        return await self._process_response(result, request)

    async def _process_response(self, response: Response | Request, request: Request) -> Response | Request:
        if isinstance(response, Request):
            return response
        for step, method in self._responses:
            if step is not None and step(request, response):
                continue
            result = await ensure_awaitable(
                self._manager._handle_mw_method(method, request=request, response=response),
                _warn=global_object_name(method),
            )
            if isinstance(result, Request):
                return result
            if not isinstance(result, Response):
                raise _invalid(f"Middleware {method.__qualname__} must return Response or Request", type(result))
            response = result
        return response

    def lets_schedule(self, request: Request, receivers: list[Any]) -> bool:
        """Return whether the receivers of `request_scheduled` would do nothing: there is only OffsiteMiddleware, and
        the request is on the site."""
        if not receivers:
            return True
        if len(receivers) > 1:
            return False
        step = self._scheduling.get(receivers[0])
        if step is None:
            middleware = getattr(receivers[0], "__self__", None)
            is_stock = is_stock_method(receivers[0], OffsiteMiddleware) and owns_none_of(
                middleware, dir(OffsiteMiddleware)
            )
            step = _offsite(middleware) if is_stock and middleware is not None else lambda request: False
            self._scheduling[receivers[0]] = step
        return step(request)

    def _prepare(self) -> None:
        """Find the steps of all middlewares. They may change, because extensions may add some."""
        methods = self._manager.methods
        self._seen_requests = deque(methods["process_request"])
        self._seen_responses = deque(methods["process_response"])
        needing_spider = self._manager._mw_methods_requiring_spider
        self._requests = [_with_step(method, _REQUEST_STEPS, needing_spider) for method in self._seen_requests]
        self._responses = [_with_step(method, _RESPONSE_STEPS, needing_spider) for method in self._seen_responses]


def _with_step(method: Any, steps: dict[type, Callable[[Any], Any]], needing_spider: set[Any]) -> tuple[Any, Any]:
    """Return the step of a middleware's method, or None, and the method without what it does not need."""
    middleware = getattr(method, "__self__", None)
    kind = type(middleware)
    if method in needing_spider:
        return None, method
    if kind is SharedThrottle:
        return steps[kind](middleware), method
    if kind not in _KINDS or not is_stock_method(method, kind) or not owns_none_of(middleware, dir(kind)):
        return None, method
    make = steps.get(kind)
    return (make(middleware) if make is not None else None), without_decorator(method)


def _invalid(message: str, kind: object) -> Exception:
    from scrapy.exceptions import _InvalidOutput

    return _InvalidOutput(f"{message}, got {kind}")


async def process_pending_io() -> None:
    """Let the event loop go through its readers and writers, as Scrapy does after an error."""
    import scrapy.utils.defer as defer

    await (getattr(defer, "_process_pending_io", None) or vars(defer)["_defer_sleep_async"])()


# --- requests ---------------------------------------------------------------------------------------------------------


def _offsite(middleware: OffsiteMiddleware) -> RequestStep:
    crawler = middleware.crawler

    def step(request: Request) -> bool:
        if request.dont_filter:
            return True
        regex = middleware.host_regex
        domains = getattr(crawler.spider, "allowed_domains", None)
        if not domains:
            return not regex.pattern  # an empty expression allows all hosts
        known = vars(middleware).get("_allowed_domains", domains)  # those of the expression; Scrapy 2.18 and later
        if known is not domains and known != list(domains):
            return False
        found = _PLAIN_URL.fullmatch(request.url)
        return found is not None and regex.search(found[1]) is not None

    return step


def _http_auth(middleware: HttpAuthMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        own = vars(middleware)
        return not own.get("_auth") and not own.get("auth") and request.meta.keys().isdisjoint(_CREDENTIALS)

    return step


def _download_timeout(middleware: DownloadTimeoutMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        if middleware._timeout:
            request.meta.setdefault("download_timeout", middleware._timeout)
        return True

    return step


def _default_headers(middleware: DefaultHeadersMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        headers = request.headers
        return all(_set_default(headers, name, value) for name, value in middleware._headers)

    return step


def _user_agent(middleware: UserAgentMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        return not middleware.user_agent or _set_default(request.headers, b"User-Agent", middleware.user_agent)

    return step


def _accept_encoding(middleware: HttpCompressionMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        return _set_default(request.headers, b"Accept-Encoding", _joined(*httpcompression.ACCEPTED_ENCODINGS))

    return step


def _request_cookies(middleware: CookiesMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        meta = request.meta
        if meta.get("dont_merge_cookies", False):
            return True
        jar = middleware.jars[meta.get("cookiejar")]
        if request.cookies or middleware.debug or jar._cookies:
            return False
        dict.pop(request.headers, b"Cookie", None)
        return True

    return step


def _http_proxy(middleware: HttpProxyMiddleware) -> RequestStep:
    def step(request: Request) -> bool:
        meta = request.meta
        return not (
            middleware.proxies
            or "proxy" in meta
            or "_auth_proxy" in meta
            or dict.__contains__(request.headers, b"Proxy-Authorization")
        )

    return step


def _request_stats(middleware: DownloaderStats) -> RequestStep:
    inc_value = counter_of(middleware.stats)

    def step(request: Request) -> bool:
        found = _PLAIN_URL.fullmatch(request.url)
        if found is None:
            return False
        method = request.method
        size = len(method) + len(" ") + len(found[2]) + len(" HTTP/1.1\r\nHost: ") + len(found[1]) + len("\r\n\r\n")
        if request.headers:
            size += _header_bytes(request.headers) + len("\r\n")
        inc_value("downloader/request_count")
        inc_value(f"downloader/request_method_count/{method}")
        inc_value("downloader/request_bytes", size + len(request.body))
        return True

    return step


def _throttle(middleware: SharedThrottle) -> RequestStep:
    return middleware.may_send


# --- responses --------------------------------------------------------------------------------------------------------


def _content_encoding(middleware: HttpCompressionMiddleware) -> ResponseStep:
    def step(request: Request, response: Response) -> bool:
        return not dict.get(response.headers, b"Content-Encoding")

    return step


def _response_cookies(middleware: CookiesMiddleware) -> ResponseStep:
    def step(request: Request, response: Response) -> bool:
        headers, meta = response.headers, request.meta
        if meta.get("dont_merge_cookies", False):
            return True
        if dict.__contains__(headers, b"Set-Cookie") or dict.__contains__(headers, b"Set-Cookie2"):
            return False
        middleware.jars[meta.get("cookiejar")]
        return not middleware.debug

    return step


def _redirect(middleware: RedirectMiddleware) -> ResponseStep:
    return lambda request, response: response.status not in _REDIRECTS


def _retry(middleware: RetryMiddleware) -> ResponseStep:
    return lambda request, response: response.status not in middleware.retry_http_codes


def _response_stats(middleware: DownloaderStats) -> ResponseStep:
    inc_value = counter_of(middleware.stats)

    def step(request: Request, response: Response) -> bool:
        status, headers = response.status, response.headers
        inc_value("downloader/response_count")
        inc_value(f"downloader/response_status_count/{status}")
        # DownloaderStats counts a line end for each name, but not for further values of a name.
        size = sum([2 + len(name) + len(value) for name, values in dict.items(headers) for value in values])
        size += 2 * (len(headers) - 1)
        inc_value("downloader/response_bytes", len(response.body) + size + _status_bytes(status) + 4)
        return True

    return step


def _throttle_response(middleware: SharedThrottle) -> ResponseStep:
    return middleware.has_no_advice


# --- headers ----------------------------------------------------------------------------------------------------------


def _set_default(headers: Headers, name: str | bytes, value: Any) -> bool:
    """Do what `Headers.setdefault` does. False: it is left to do."""
    if headers.encoding != "utf-8" or type(name) not in (str, bytes) or type(value) not in (str, bytes):
        return False
    key, encoded = _encoded(name, value)
    if not dict.__contains__(headers, key):
        dict.__setitem__(headers, key, [encoded])
    return True


@lru_cache(maxsize=256)  # one for each header of the settings
def _encoded(name: str | bytes, value: str | bytes) -> tuple[bytes, bytes]:
    """Return the name and value of a header as Headers has them."""
    headers = Headers([(name, value)])
    ((key, (encoded,)),) = dict.items(headers)
    return key, encoded


@lru_cache(maxsize=16)  # there is one list of encodings
def _joined(*encodings: bytes) -> bytes:
    return b", ".join(encodings)


@lru_cache(maxsize=100)  # one for each status
def _status_bytes(status: int) -> int:
    return get_status_size(status)


def _header_bytes(headers: Headers) -> int:
    """Return the size of the headers as lines, without the last line end."""
    sizes = [4 + len(name) + len(value) for name, values in dict.items(headers) for value in values]
    return sum(sizes) - 2 if sizes else 0


_REQUEST_STEPS: Final[dict[type, Callable[[Any], RequestStep]]] = {
    OffsiteMiddleware: _offsite,
    HttpAuthMiddleware: _http_auth,
    DownloadTimeoutMiddleware: _download_timeout,
    DefaultHeadersMiddleware: _default_headers,
    UserAgentMiddleware: _user_agent,
    HttpCompressionMiddleware: _accept_encoding,
    CookiesMiddleware: _request_cookies,
    HttpProxyMiddleware: _http_proxy,
    DownloaderStats: _request_stats,
    SharedThrottle: _throttle,
}
_RESPONSE_STEPS: Final[dict[type, Callable[[Any], ResponseStep]]] = {
    HttpCompressionMiddleware: _content_encoding,
    CookiesMiddleware: _response_cookies,
    RedirectMiddleware: _redirect,
    RetryMiddleware: _retry,
    DownloaderStats: _response_stats,
    SharedThrottle: _throttle_response,
}
_KINDS: Final = frozenset((*_REQUEST_STEPS, *_RESPONSE_STEPS, MetaRefreshMiddleware))
"""Classes of Scrapy whose methods are called without their decorators."""
