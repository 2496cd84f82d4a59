"""Pages of a Scrapy process that a browser builds: the same pool of browsers as a worker's.

The page itself is downloaded by the project's own download handler, with all of its middlewares; the browser gets that
response, and what the page loads comes from Gossamer's HTTP client, with its address guard. Loaded only where a page is
rendered.

Fixed: the names of statistics, and of the keys that it puts into the meta of requests, which spiders read.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.http import Headers, HtmlResponse, Response
from scrapy.utils.defer import ensure_awaitable, maybe_deferred_to_future
from scrapy.utils.reactor import is_reactor_installed

from gossamer.errors import BrowserError, FetchError
from gossamer.fetch.backend import PageLoad
from gossamer.fetch.client import HttpClients
from gossamer.fetch.decode import decode, parse_encodings
from gossamer.fetch.exchange import FetchRequest, FetchResponse, ResponseLimits, Timings, header_lines
from gossamer.fetch.robots_service import RobotsService, RobotsUnavailable
from gossamer.net.guard import refusal_reason
from gossamer.net.resolve import Resolver
from gossamer.policy.urls import canonical, host, origin, registered_domain
from gossamer.scrapy.downloader import lookup
from gossamer.scrapy.headers import header_pairs
from gossamer.scrapy.proxies import CREDENTIALS
from gossamer.scrapy.render_options import RenderRules
from gossamer.settings import Settings
from gossamer.wiring.browser import browser_backend
from gossamer.wiring.worker import make_clients
from gossamer.worker.robots import MemoryRobotsStore

RESULT_KEY = "rendering"
"""Key of a request's meta: how its page was rendered, as `rendering` of a record has it."""
CHOICE_KEY = "render_choice"
"""Key of a request's meta: decision of GOSSAMER_RENDER = "auto"."""
SCREENSHOT_KEY = "screenshot"
"""Key of a request's meta: the screenshot as PNG."""
FLAG = "rendered"
"""Flag of a response whose body is the document as scripts have built it."""
_PAGES_PER_TAB = 4
"""Pages for each tab, built or waiting, from which on no more are leased."""


class BrowserFailed(OSError):
    """Raised where the browser could not render a page. Scrapy's retry middleware repeats requests that raise it."""


class _PageResponse(FetchResponse):
    """Response of Scrapy's, as the browser gets it."""

    scrapys: Response | None = None


class _PageRequest(FetchRequest):
    """Request of Scrapy's, as the browser's backend gets it."""

    scrapys: Request | None = None
    handler: Any = None


class _ScrapysHandlers:
    """Fetch backend: the pages come from Scrapy's download handlers, what they load from the HTTP client."""

    def __init__(self, clients: HttpClients, limits: ResponseLimits) -> None:
        self._clients = clients
        self._limits = limits

    async def fetch(
        self, request: FetchRequest, timeout_seconds: float | None = None, *, wait_for_room: bool = False
    ) -> FetchResponse:
        """Implement FetchBackend."""
        if not isinstance(request, _PageRequest):
            return await self._clients.fetch(request, timeout_seconds, wait_for_room=wait_for_room)
        response: Response = await request.handler(request.scrapys)
        if request.page is not None and isinstance(request.page.request_for, _Subrequests):
            request.page.request_for.take_address(response)
        return _page(request.url, response, self._limits)


class _Subrequests:
    """Makes the requests of what one page loads: with the client's headers, cookies and proxy as far as they are the
    page's own."""

    def __init__(self, request: Request, url: str, *, insecure: bool) -> None:
        self._origin = origin(url)
        self._host = host(url)
        self._insecure = insecure
        self._proxy = _proxy(request)
        self._is_private = False
        """True: the page came from an address outside the public internet."""
        headers = {
            name.decode("latin-1"): b",".join(values).decode("latin-1") for name, values in request.headers.items()
        }
        common = ("User-Agent", "Accept-Language")
        self._common = tuple((name, headers[name]) for name in common if name in headers)
        own = (*common, "Cookie", "Authorization")
        self._own = tuple((name, headers[name]) for name in own if name in headers)

    def take_address(self, response: Response) -> None:
        """Note where the page came from: a page from a private network may load from its own host."""
        self._is_private = response.ip_address is not None and refusal_reason(str(response.ip_address)) is not None

    def __call__(self, url: str) -> FetchRequest:
        """Return a GET of this URL."""
        return FetchRequest(
            url,
            headers=self._own if origin(url) == self._origin else self._common,
            proxy=self._proxy,
            insecure=self._insecure,
            allow_private=self._is_private and host(url) == self._host,
        )


class PageRenderer:
    """Renders pages of one crawler."""

    def __init__(self, crawler: Crawler, settings: Settings, rules: RenderRules) -> None:
        scrapys = crawler.settings
        self.rules = rules
        self.on_load: Callable[[bool], None] = lambda is_full: None
        """Called when the browser has as many pages as it takes, with True, and when it has fewer again."""
        self._stats = crawler.stats
        self._crawl = f"{scrapys['BOT_NAME']} {crawler.spidercls.name}"
        self._has_jars = scrapys.getbool("COOKIES_ENABLED")
        self._insecure = not scrapys.getbool("DOWNLOAD_VERIFY_CERTIFICATES")
        self._robots_agent = (
            str(scrapys["ROBOTSTXT_USER_AGENT"] or scrapys["USER_AGENT"]) if scrapys.getbool("ROBOTSTXT_OBEY") else ""
        )
        self._resolver = Resolver(
            overrides=settings.fetch.resolve,
            allow_networks=settings.allow_networks,
            lookup=lookup if is_reactor_installed() else None,
        )
        self._clients = make_clients(settings, self._resolver)
        self._robots = RobotsService(self._clients.fetch, MemoryRobotsStore())
        handlers = _ScrapysHandlers(self._clients, ResponseLimits(body_bytes=settings.fetch.max_body))
        self._backend = browser_backend(settings, handlers)
        self._most = _PAGES_PER_TAB * settings.browser.processes * settings.browser.tabs
        self._in_progress = 0
        self._is_full = False

    async def download(self, request: Request, why: str, handler: Callable[[Request], Awaitable[Response]]) -> Response:
        """Return the response to a request, with the document as its body if its page was rendered. `why`: as
        `RenderRules.reason` has it. `handler` downloads without a browser."""
        options = self.rules.options(request)
        url = canonical(request.url)
        subrequests = _Subrequests(request, url, insecure=self._insecure)
        page = PageLoad(
            self._crawl,
            registered_domain(host(url)),
            subrequests,
            self._allows,
            why,
            captures=options.captures,
            screenshot=options.screenshot,
            learns=why == "auto",
            steps=options.steps,
            terms=options.terms,
            session=_session(request, has_jars=self._has_jars),
        )
        wanted = _PageRequest(
            url, headers=tuple(header_pairs(request.headers)), page=page, scrapys=request, handler=handler
        )
        self._change(1)
        try:
            found = await self._backend.fetch(wanted)
        except BrowserError as error:
            self._count(error.kind)
            raise BrowserFailed(str(error)) from error
        finally:
            self._change(-1)
        assert isinstance(found, _PageResponse)
        return self._answer(request, found)

    async def _allows(self, request: FetchRequest) -> bool:
        """Return whether robots.txt lets a page load this."""
        if not self._robots_agent:
            return True
        answer = await self._robots.check(request.url, user_agent=self._robots_agent, template=request)
        return not isinstance(answer, RobotsUnavailable) and answer.allowed

    def _answer(self, request: Request, page: _PageResponse) -> Response:
        """Return the response that the spider gets."""
        plain, rendering = page.scrapys, page.rendering
        assert plain is not None
        if page.render_choice:
            request.meta[CHOICE_KEY] = page.render_choice
        if rendering is None:
            return plain
        self._count("pages")
        for name, number in (
            ("requests", rendering.requests),
            ("refused", rendering.refused),
            ("cached", rendering.cached),
        ):
            self._count(name, number)
        flags = [*plain.flags, FLAG, *(["truncated"] if page.truncated else [])]
        if page.moved_to is not None:
            # Scrapy's redirect middleware follows it, within its limits.
            return Response(plain.url, status=302, headers={"Location": page.moved_to}, flags=flags)
        request.meta[RESULT_KEY] = msgspec.to_builtins(rendering)
        if page.screenshot:
            request.meta[SCREENSHOT_KEY] = page.screenshot
        headers = Headers(plain.headers)
        headers["Content-Type"] = next(value for name, value in page.headers if name == "Content-Type")
        for name in ("Content-Encoding", "Content-Length"):
            headers.pop(name, None)
        return plain.replace(cls=HtmlResponse, body=page.body, headers=headers, flags=flags, encoding="utf-8")

    def _change(self, number: int) -> None:
        """Count the pages in progress. Reports when the browser has all that it takes, and when it takes some again."""
        self._in_progress += number
        is_full = self._in_progress >= self._most
        if is_full is not self._is_full:
            self._is_full = is_full
            self.on_load(is_full)

    def _count(self, name: str, number: int = 1) -> None:
        if self._stats is not None and number:
            self._stats.inc_value(f"gossamer/rendered/{name}", number)

    async def close(self) -> None:
        """End the browsers. May be repeated."""
        await self._backend.close()
        await self._robots.close()
        await self._clients.close()
        self._resolver.close()


class RenderingHandler:
    """Download handler around the project's own: passes requests that are to be rendered to the browser."""

    lazy = False

    def __init__(self, handler: Any, renderer: PageRenderer, spider: Spider | None) -> None:
        """`spider`: for a handler of Scrapy's past, which wants it and returns a Deferred; None: it is none of them."""
        self._handler = handler
        self._renderer = renderer
        self._spider = spider

    async def download_request(self, request: Request) -> Response:
        """Implement Scrapy's interface."""
        if why := self._renderer.rules.reason(request):
            return await self._renderer.download(request, why, self._download)
        return await self._download(request)

    async def _download(self, request: Request) -> Response:
        if self._spider is None:
            return await self._handler.download_request(request)  # type: ignore[no-any-return]
        return await maybe_deferred_to_future(self._handler.download_request(request, self._spider))

    async def close(self) -> None:
        """Implement Scrapy's interface."""
        await self._renderer.close()
        if hasattr(self._handler, "close"):
            await ensure_awaitable(self._handler.close())


def _page(url: str, response: Response, limits: ResponseLimits) -> _PageResponse:
    """Return a response of Scrapy's in the form that the browser's backend takes."""
    headers = header_pairs(response.headers)
    body, truncated = response.body, False
    if encodings := parse_encodings(header_lines(headers, "content-encoding")):
        try:
            decoded = decode(body, encodings, limits)
            body, truncated = decoded.body, decoded.truncated
        except FetchError:
            body = b""  # the middlewares of the project report it
    return _PageResponse(
        url=url,
        status=response.status,
        reason="",
        http_version="1.1",
        headers=headers,
        request_head=b"",
        response_head=b"",
        body=body,
        wire_body=None,
        truncated=truncated,
        ip=str(response.ip_address or ""),
        port=0,
        reused=False,
        timings=Timings(),
        received_bytes=len(response.body),
        scrapys=response,
    )


def _session(request: Request, *, has_jars: bool) -> str:
    """Return a text that differs for requests of different accounts: by their cookie jars or, without one, their own
    cookies, and by their Authorization. `has_jars`: requests have jars unless they want none."""
    headers, meta = request.headers, request.meta
    in_jar = has_jars and not meta.get("dont_merge_cookies")
    cookies = meta.get("cookiejar") if in_jar else headers.getlist("Cookie")
    return repr((in_jar, cookies, headers.getlist("Authorization")))


def _proxy(request: Request) -> str | None:
    """Return the proxy of a request, with its user and password; None: it has none."""
    url = request.meta.get("proxy")
    if not url:
        return None
    credentials = request.headers.get(CREDENTIALS)
    return str(url) if credentials is None else f"{url}\n{CREDENTIALS.decode()}: {credentials.decode('latin-1')}"
