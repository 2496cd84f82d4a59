"""Scrapy download handler for http and https that uses Gossamer's connections and response parser.

It does what Scrapy's HTTP/1.1 handler does, for a fraction of the CPU: one request, one response, as it was sent; all
middlewares (cookies, redirects, retries, decompression) work as before. Requests and settings that it does not support
go to Scrapy's own handler: proxies (except `https://` ones, which it does not have), bind addresses, TLS settings of
the project, another DNS resolver or reactor, handlers of the signals `headers_received` and `bytes_received`, headers
that decide about framing.

Fixed: the exceptions, which Scrapy's retry middleware knows; and a request is sent a second time only where
`may_repeat` allows it, because a site counts it.
"""

import asyncio
import logging
import math
import os
import re
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Final, NoReturn

from scrapy import Request, exceptions, signals
from scrapy.crawler import Crawler
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings
from scrapy.utils.asyncio import is_asyncio_available
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.error import DNSLookupError, getConnectError

from gossamer.errors import (
    BadUrl,
    ConnectFailed,
    ConnectTimeout,
    FetchError,
    HeadersTooLarge,
    ProxyFailed,
    TotalTimeout,
)
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.client import TimeoutWatch
from gossamer.fetch.connection import HttpConnection, LiveConnection, PoolKey
from gossamer.fetch.decode import decode, is_plain, parse_encodings
from gossamer.fetch.dial import Route, Tunnel, dial
from gossamer.fetch.exchange import KIB, ResponseLimits, Timeouts
from gossamer.fetch.pool import ConnectionPool, LostConnections
from gossamer.fetch.proxies import Proxy
from gossamer.fetch.request import Origin, RequestEncoder
from gossamer.fetch.response import ResponseReader
from gossamer.fetch.tls import TlsContexts
from gossamer.scrapy.proxies import CREDENTIALS, secure_proxy
from gossamer.scrapy.shortcuts.notices import Signals, certificate, warn_of_hostname

if TYPE_CHECKING:
    from twisted.internet.ssl import Certificate

log = logging.getLogger(__name__)

SCHEMES: Final = ("http", "https")
_DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""Timeout of a request without `download_timeout`, as in Scrapy."""
_IDLE_SECONDS: Final = 60.0
"""Time that an idle connection is kept. Servers close idle connections, too, so a longer time loses more requests."""
_CONNECTIONS: Final = 1000
"""Connections that are open besides those of CONCURRENT_REQUESTS. Each idle one takes a descriptor."""
_HEADER_BYTES: Final = 256 * KIB
_HEADERS: Final = 1000
"""Bounds on the head of a response. Larger ones accept more servers."""

_DECODED_BYTES: Final = 5 * KIB * KIB
"""Part of a body that is decoded to see whether it is encoded at all."""

_OWN_TLS = (
    "DOWNLOADER_CLIENTCONTEXTFACTORY", "DOWNLOADER_CLIENT_TLS_CIPHERS", "DOWNLOADER_CLIENT_TLS_METHOD",
    "DOWNLOADER_CLIENT_TLS_VERBOSE_LOGGING", "DOWNLOAD_TLS_MAX_VERSION", "DOWNLOAD_TLS_MIN_VERSION",
    "DOWNLOAD_VERIFY_CERTIFICATES",
)  # fmt: skip
"""Settings of TLS. A project that sets one of them gets Scrapy's handler for https."""
_OWN_NETWORK = ("DOWNLOAD_BIND_ADDRESS", "DNS_RESOLVER", "TWISTED_DNS_RESOLVER")
"""Settings of which any makes Scrapy's handler do all downloads."""
_LEFT_TO_SCRAPY = ("proxy", "bindaddress")
"""Keys of a request's meta of which any makes Scrapy's handler download it."""
_FRAMING = frozenset(
    (b"Connection", b"Content-Length", b"Expect", b"Keep-Alive", b"Proxy-Authorization", b"Te", b"Trailer",
     b"Transfer-Encoding", b"Upgrade")
)  # fmt: skip
"""Request headers of which any makes Scrapy's handler send the request."""
_CONNECTION_HEADERS = frozenset(
    ("content-length", "connection", "keep-alive", "te", "trailers", "transfer-encoding", "upgrade", "proxy-connection")
)
"""Response headers that Scrapy does not show: those of the connection. It shows a Content-Length of its own."""
_REPEATABLE = frozenset(("GET", "HEAD", "OPTIONS", "DELETE", "TRACE"))
"""Methods of requests that are sent again when a kept connection was lost, as in Scrapy's handler."""
_METHOD = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Z]+")
_TARGET = re.compile(r"[!-~]+")


def is_supported(settings: BaseSettings) -> bool:
    """Return whether this handler can replace Scrapy's: in Scrapy 2.15 and later, on a Twisted reactor."""
    has_exceptions = hasattr(exceptions, "DownloadFailedError")
    return has_exceptions and settings.getbool("TWISTED_REACTOR_ENABLED", True)


class _Connection(HttpConnection):
    """Connection that knows its peer."""

    ip_address: IPv4Address | IPv6Address | None = None
    certificate: "Certificate | None" = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if peer := transport.get_extra_info("peername"):
            self.ip_address = ip_address(peer[0])
        if tls := transport.get_extra_info("ssl_object"):
            der = tls.getpeercert(binary_form=True)
            self.certificate = certificate(der)
            warn_of_hostname(der, self.key.host)


class _Exchange:
    """One request and its response, over one connection or, if that was lost, a second one."""

    __slots__ = ("connection", "deadline", "limits", "origin", "proxy", "reader", "request", "wire")

    def __init__(
        self,
        request: Request,
        proxy: Proxy | None,
        origin: Origin,
        wire: bytes,
        deadline: float,
        limits: ResponseLimits,
    ) -> None:
        self.request = request
        self.proxy = proxy
        self.origin = origin
        self.wire = wire
        self.deadline = deadline
        self.limits = limits
        self.connection: _Connection | None = None
        self.begin()

    def begin(self) -> None:
        """Prepare for a response."""
        self.reader = ResponseReader(self.limits, head_only=self.request.method == "HEAD")

    def is_lost_while_idle(self, error: FetchError) -> bool:
        """Return whether the server closed the kept connection before it answered, and the request may be repeated."""
        is_repeatable = self.request.method in _REPEATABLE and not self.request.body
        return is_repeatable and not self.reader.received_bytes and not isinstance(error, TotalTimeout)


class DownloadHandler:
    """Downloads requests of one scheme. Scrapy creates one for http and one for https."""

    lazy = True
    has_secure_proxies = True

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "DownloadHandler":
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._notices = Signals(crawler.signals.sender)
        self._max_size = settings.getint("DOWNLOAD_MAXSIZE")
        self._warn_size = settings.getint("DOWNLOAD_WARNSIZE")
        self._fails_on_data_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._has_warned = False
        self._leaves_all = _sets_any(settings, _OWN_NETWORK) or not is_asyncio_available()
        self._leaves_tls = _sets_any(settings, _OWN_TLS)
        self._scrapys: Any = None
        """Scrapy's own handler, created when first needed."""
        self.may_repeat: Callable[[str, str], Awaitable[bool]] | None = None
        """Asked, with the URL and the proxy's address, before a request is sent again whose connection was lost."""
        self.on_scrapys_handler: Callable[[Any], None] | None = None
        """Called with Scrapy's own handler when it is created."""
        self._encoder = RequestEncoder()
        self._losses = LostConnections()
        self._budget = ByteBudget(sys.maxsize)  # Scrapy bounds the memory of responses by itself
        self._tls = TlsContexts()
        self._live: set[LiveConnection] = set()
        self._concurrency = settings.getint("CONCURRENT_REQUESTS")
        self._pool: ConnectionPool | None = None
        self._watch: TimeoutWatch

    async def download_request(self, request: Request) -> Response:
        """Return the response. Raises the exceptions that Scrapy's handler raises."""
        proxy = secure_proxy(request)
        encoded = None if self._is_left_to_scrapy(request, proxy) else self._encode(request, proxy)
        if encoded is None:
            return await self._scrapys_handler(request.url).download_request(request)  # type: ignore[no-any-return]
        timeout_seconds: float = request.meta.get("download_timeout") or _DEFAULT_TIMEOUT_SECONDS
        started = time.monotonic()
        exchange = _Exchange(request, proxy, *encoded, started + timeout_seconds, self._limits(request))
        flags: list[str] | None = None
        try:
            await self._perform(exchange)
        except FetchError as error:
            # Responses that are no pages say all by their status and headers.
            if not exchange.reader.has_head or 200 <= exchange.reader.status < 300:
                if not _is_data_loss(error, exchange.reader):
                    _raise_scrapys(error, request, timeout_seconds)
                self._raise_data_loss(request, error)
            flags = ["dataloss"]
        reader, connection = exchange.reader, exchange.connection
        assert connection is not None
        if reader.complete_bytes:
            self._budget.consume(reader.complete_bytes)
        if reader.truncated:
            _refuse(reader, request)
        for fault in reader.faults:
            self._crawler.stats.inc_value(f"gossamer/faulty_responses/{fault}")
        request.meta["download_latency"] = connection.first_byte_at - started
        self._warn_of_size(reader, request)
        return _response(request, reader, connection, flags)

    async def close(self) -> None:
        """Close all connections."""
        if self._scrapys is not None:
            await self._scrapys.close()
        if self._pool is None:
            return
        self._watch.stop()
        self._pool.close_idle()
        live = list(self._live)
        for connection in live:
            connection.abort()
        for connection in live:
            await connection.wait_lost()

    # --- what is left to Scrapy ---------------------------------------------------------------------------------------

    def _is_left_to_scrapy(self, request: Request, proxy: Proxy | None) -> bool:
        if self._leaves_all or (self._leaves_tls and request.url.startswith("https")):
            return True
        meta = request.meta
        if any(meta.get(key) for key in _LEFT_TO_SCRAPY if key != "proxy" or proxy is None):
            return True
        spider = self._crawler.spider  # its attributes are those of Scrapy's past, which Scrapy's handler still reads
        if hasattr(spider, "download_maxsize") or hasattr(spider, "download_warnsize"):
            return True
        find = self._notices.receivers
        return bool(find(signals.headers_received) or find(signals.bytes_received))

    def _scrapys_handler(self, url: str) -> Any:
        if self._scrapys is None:
            path = self._crawler.settings["DOWNLOAD_HANDLERS_BASE"][url.partition(":")[0]]
            self._scrapys = build_from_crawler(load_object(path), self._crawler)
            if self.on_scrapys_handler is not None:
                self.on_scrapys_handler(self._scrapys)
        return self._scrapys

    # --- one request --------------------------------------------------------------------------------------------------

    def _encode(self, request: Request, proxy: Proxy | None) -> tuple[Origin, bytes] | None:
        """Return where the request goes, and its bytes, with the headers in Scrapy's order. None: it has something
        that only Scrapy's handler sends."""
        url, headers = request.url, request.headers
        try:
            origin, target = self._encoder.split(url)
        except BadUrl:
            return None
        if (
            origin.credentials
            or not _FRAMING.isdisjoint({*headers} if proxy is None else {*headers} - {CREDENTIALS})
            or not _TARGET.fullmatch(target)
            or not _METHOD.fullmatch(request.method)
            or request.method == "CONNECT"
        ):
            return None
        before = "" if proxy is None or origin.secure else f"http://{origin.authority}"
        lines = [f"{request.method} {before}{target} HTTP/1.1".encode("ascii")]
        body = request.body
        if body or request.method in ("POST", "PUT"):
            lines.append(b"Content-Length: %d" % len(body))
        for name, values in dict.items(headers):
            if name == CREDENTIALS and origin.secure:
                continue  # only the proxy gets them, with CONNECT
            for value in values:
                lines.append(name + b": " + value)  # noqa: PERF401 (two loops are easier to read)
        if not dict.__contains__(headers, b"Host"):
            lines.append(b"Host: " + _host(origin))
        head = b"\r\n".join(lines)
        # A line end within a header would add another header.
        if head.count(b"\n") != len(lines) - 1 or head.count(b"\r") != len(lines) - 1 or b"\0" in head:
            return None
        return origin, head + b"\r\n\r\n" + body

    def _limits(self, request: Request) -> ResponseLimits:
        size = 0 if request.method == "HEAD" else request.meta.get("download_maxsize", self._max_size)
        return _limits(size or sys.maxsize)

    async def _perform(self, exchange: "_Exchange") -> None:
        """Send the request, and wait for the whole response. Raises FetchError, and Scrapy's and Twisted's exceptions
        for a connection that cannot be opened."""
        if self._pool is None:
            self._begin()
        assert self._pool is not None
        origin = exchange.origin
        through = None if exchange.proxy is None else f"{exchange.proxy.address} {exchange.proxy.header_lines}"
        key = PoolKey(origin.scheme, origin.host, "", origin.port, through, True)
        kept = self._pool.take_idle(key) if self._losses.may_reuse(key) else None
        if kept is not None:
            try:
                await self._send(exchange, kept, key)
                return
            except FetchError as error:
                if not exchange.is_lost_while_idle(error):
                    raise
                self._losses.record(key)
                address = exchange.proxy.address if exchange.proxy is not None else ""
                if self.may_repeat is not None and not await self.may_repeat(exchange.request.url, address):
                    raise
                exchange.begin()
        connection = await self._connect(exchange, key)
        await self._send(exchange, connection, key)

    async def _send(self, exchange: "_Exchange", connection: HttpConnection, key: PoolKey) -> None:
        assert self._pool is not None
        assert isinstance(connection, _Connection)
        exchange.connection = connection
        try:
            await self._watch.send(connection, exchange.wire, exchange.reader, exchange.deadline)
        except BaseException:
            connection.abort()
            raise
        finally:
            self._watch.busy.discard(connection)
            if not self._losses.may_reuse(key):
                connection.abort()
            self._pool.release(connection)

    async def _connect(self, exchange: "_Exchange", key: PoolKey) -> HttpConnection:
        """Return a new connection."""
        assert self._pool is not None
        origin, proxy, deadline = exchange.origin, exchange.proxy, exchange.deadline
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                kept = await self._pool.acquire(key, fresh=True)
        except TimeoutError:
            raise TotalTimeout("waiting for a free connection") from None
        assert kept is None
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                ip = await _resolve(origin.host if proxy is None else proxy.host)
                context = self._tls.get(insecure=True) if origin.secure else None
                route = Route(ip, origin.port, origin.host, context)
                if proxy is not None:
                    tunnel = Tunnel(proxy, origin.host, origin.port) if origin.secure else None
                    to_proxy = self._tls.get(insecure=False)  # it gets a password
                    route = Route(ip, proxy.port, origin.host, context, tunnel, proxy, to_proxy)
                make = partial(self._new_connection, key)
                dialled = await dial(route, make, timeout_seconds=deadline - time.monotonic())
        except TimeoutError:
            self._pool.discard(key)
            raise ConnectTimeout(origin.host) from None
        except BaseException:
            self._pool.discard(key)
            raise
        return dialled.connection

    def _new_connection(self, key: PoolKey) -> _Connection:
        return _Connection(asyncio.get_running_loop(), self._budget, self._live, key)

    def _begin(self) -> None:
        """Create what belongs to the running event loop."""
        loop = asyncio.get_running_loop()
        most = _CONNECTIONS + self._concurrency
        self._pool = ConnectionPool(loop, total=most, per_key=most, idle_seconds=_IDLE_SECONDS)
        # `connection.deadline` is the only timeout: each request has its own.
        never = Timeouts(first_byte=math.inf, idle=math.inf, total=math.inf)
        self._watch = TimeoutWatch(loop, never, self._budget, self._pool.expire)

    # --- sizes and losses ---------------------------------------------------------------------------------------------

    def _raise_data_loss(self, request: Request, error: FetchError) -> None:
        """Raise ResponseDataLossError, unless the project takes incomplete bodies."""
        if not request.meta.get("download_fail_on_dataloss", self._fails_on_data_loss):
            return
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "Got data loss in %s. If you want to process broken responses set the setting "
                "DOWNLOAD_FAIL_ON_DATALOSS = False -- This message won't be shown in further requests",
                request.url,
            )
        raise exceptions.ResponseDataLossError(str(error)) from error

    def _warn_of_size(self, reader: ResponseReader, request: Request) -> None:
        most = request.meta.get("download_warnsize", self._warn_size)
        size = max(reader.content_length or 0, reader.body_bytes)
        if most and size > most:
            received = "Received" if reader.content_length is None else "Expected to receive"
            log.warning(
                "%s %d bytes which is larger than download warn size (%d) in request %s.", received, size, most, request
            )


def _sets_any(settings: BaseSettings, names: tuple[str, ...]) -> bool:
    """Return whether the project sets one of these settings."""
    return any(settings.getpriority(name) for name in names)


@lru_cache(maxsize=64)  # a project has one or a few
def _limits(size: int) -> ResponseLimits:
    return ResponseLimits(header_bytes=_HEADER_BYTES, headers=_HEADERS, body_bytes=size, whole_only=True)


@lru_cache(maxsize=1024)  # one for each origin that is crawled at a time
def _host(origin: Origin) -> bytes:
    """Return the value of the Host header, without a default port."""
    default = ":443" if origin.secure else ":80"
    return origin.authority.removesuffix(default).encode("ascii")


async def _resolve(host: str) -> str:
    """Return the address that Scrapy's resolver, with its cache, has for a host. Raises CannotResolveHostError."""
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    from gossamer.scrapy.downloader import lookup

    try:
        (ip,) = await lookup(host)
    except (DNSLookupError, socket.gaierror) as error:
        raise exceptions.CannotResolveHostError(str(error)) from error
    return ip


def _is_data_loss(error: FetchError, reader: ResponseReader) -> bool:
    """Return whether the response has ended within its body."""
    return reader.has_head and not isinstance(error, TotalTimeout | HeadersTooLarge)


def _raise_scrapys(error: FetchError, request: Request, timeout_seconds: float) -> NoReturn:
    """Raise the exception that Scrapy's handler raises in the same situation."""
    if isinstance(error, ProxyFailed):
        raise error from None  # its cause shows the proxy's address
    if isinstance(error, TotalTimeout | ConnectTimeout):
        message = f"Getting {request.url} took longer than {timeout_seconds} seconds."
        raise exceptions.DownloadTimeoutError(message) from error
    if isinstance(error, ConnectFailed):
        cause = error.__cause__
        if isinstance(cause, ConnectionRefusedError):
            # With Twisted's text, because the retry middleware logs it.
            twisteds = getConnectError((cause.errno, os.strerror(cause.errno or 0)))  # type: ignore[no-untyped-call]
            raise exceptions.DownloadConnectionRefusedError(str(twisteds)) from error
        if isinstance(cause, OSError):
            raise getConnectError(cause) from error  # type: ignore[no-untyped-call]
    raise exceptions.DownloadFailedError(str(error)) from error


def _refuse(reader: ResponseReader, request: Request) -> NoReturn:
    """Raise DownloadCancelledError: the body is larger than it may be."""
    most = reader.limits.body_bytes
    expected = reader.content_length is not None and reader.content_length > most
    received = f"Expected to receive {reader.content_length}" if expected else f"Received more than {most}"
    message = f"{received} bytes which is larger than download max size ({most}) in request {request}."
    log.warning("%s", message)
    raise exceptions.DownloadCancelledError(message)


def _response(request: Request, reader: ResponseReader, connection: _Connection, flags: list[str] | None) -> Response:
    url = request.url.partition("#")[0]
    headers, is_partial = _headers(reader, is_head=request.method == "HEAD")
    body = reader.body
    if not 200 <= reader.status < 300:
        _drop_false_headers(headers, reader)
    kind = responsetypes.from_args(headers=headers, url=url, body=body)
    response = kind(
        url=url,
        status=reader.status,
        body=body,
        flags=["partial"] if is_partial and flags is None else flags,
        certificate=connection.certificate,
        ip_address=connection.ip_address,
        protocol=f"HTTP/{reader.http_version}",
    )
    response.headers = headers  # as an argument, they would be normalized once more
    return response


def _drop_false_headers(headers: Headers, reader: ResponseReader) -> None:
    """Drop headers by which Scrapy's middlewares would lose the response of a status that is no page's: an empty
    Location, and an encoding that the body does not have."""
    if not headers.get("Location"):
        headers.pop("Location", None)
    if reader.content_encodings:
        encodings, body = parse_encodings(reader.content_encodings), reader.body
        if is_plain(body, encodings):
            try:
                decode(body, encodings, _limits(_DECODED_BYTES))
            except FetchError:
                headers.pop("Content-Encoding", None)


def _headers(reader: ResponseReader, *, is_head: bool) -> tuple[Headers, bool]:
    """Return the headers as Scrapy shows them, and whether the end of the connection was the end of the body."""
    found: dict[bytes, list[bytes]] = {}
    is_chunked = False
    for name, value in reader.headers:
        lower = name.lower()
        if lower in _CONNECTION_HEADERS and not (is_head and lower == "content-length"):
            is_chunked = is_chunked or lower == "transfer-encoding"
            continue
        found.setdefault(name.encode("latin-1").title(), []).append(value.encode("latin-1"))
    has_body = not is_head and reader.status not in (204, 304)
    length = (None if is_chunked else reader.content_length) if has_body else 0
    headers = Headers()
    if length is not None:
        dict.__setitem__(headers, b"Content-Length", [b"%d" % length])
    dict.update(headers, found)
    return headers, length is None and not is_chunked
