"""One attempt at a request: its lease, the redirects so far, and the next request to send.

A lease is a request that the frontier (the cluster's store of requests) has handed to this worker. Fixed: which cookies
and secret headers another host gets (none that were not meant for it); and the payload of `packed`, which the frontier
stores and workers of other versions read.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from gossamer.errors import BrowserError, PageEnded
from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.request import OWNED
from gossamer.model.assets import Asset
from gossamer.model.record import WireExchange
from gossamer.model.request import EMPTY_PAYLOAD, Lease, Payload, pack, unpack
from gossamer.policy.urls import host, origin, registered_domain
from gossamer.worker.context import Context
from gossamer.worker.spider import Spider

if TYPE_CHECKING:
    from gossamer.fetch.backend import PageLoad
    from gossamer.render.open_page import OpenPage
    from gossamer.session.site_session import SiteSession

MAX_HOPS = 10
"""Redirects that are followed for one request. Each of them costs a hit (a request that counts against the site's rate
limit), and a chain of more fails. The commands `crawl` and `fetch` follow as many."""

Headers = Sequence[tuple[str, str]]


def method_after(status: int, method: str) -> str:
    """Return the method of the request after a redirect (Fetch standard, HTTP-redirect fetch). If it changes, the body
    is dropped."""
    if status == 303 and method not in ("GET", "HEAD"):
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method


_CONDITIONAL = frozenset(("if-none-match", "if-modified-since"))
_EXPIRED = re.compile(r"-\d+|0+")
"""Values of a cookie's Max-Age that remove it (RFC 6265, section 5.2.2)."""


def cookies_after(url: str, headers: Headers, to: str, cookies: Mapping[str, str]) -> dict[str, str]:
    """Return the cookies to send to `to`: those sent so far and those that the redirect at `url` sets.

    Cookies live for one chain of redirects. A cookie without Domain stays on its host (RFC 6265, 5.3), so that another
    host gets only cookies that were set for a domain of both hosts.
    """
    here, there = host(url), host(to)
    kept = dict(cookies) if here == there else {}
    for name, value in headers:
        if name.lower() != "set-cookie":
            continue
        pair, *words = value.split(";")
        key, equals, content = pair.strip().partition("=")
        if not equals or not key:
            continue
        attributes = {}
        for word in words:
            attribute, _, setting = word.strip().partition("=")
            attributes[attribute.lower()] = setting.strip()
        is_expired = _EXPIRED.fullmatch(attributes.get("max-age", ""))
        if is_expired or not _reaches(attributes.get("domain", ""), here, there):
            kept.pop(key, None)
        elif "secure" not in attributes or to.startswith("https:"):
            kept[key] = content
    return kept


def _reaches(domain: str, here: str, there: str) -> bool:
    """Return whether a cookie with this Domain (empty: none), set by the host `here`, is sent to the host `there`."""
    domain = domain.strip().removeprefix(".").lower()
    if not domain:
        return here == there
    return all(name == domain or name.endswith(f".{domain}") for name in (here, there))


def asset_headers(asset: Asset, url: str) -> dict[str, str]:
    """Return the headers of a request for an asset: a Referer as browsers send it, because some sites refuse images and
    films without one (policy strict-origin-when-cross-origin)."""
    referrer = asset.referrer
    if referrer.startswith("https:") and url.startswith("http:"):
        return {"Accept": "*/*"}
    return {"Accept": "*/*", "Referer": referrer if origin(referrer) == origin(url) else f"{origin(referrer)}/"}


class Attempt:
    """One attempt at the request of a lease. `url` is requested next; `chain` lists the redirects that led to it."""

    # Class attributes, because most attempts never change these. None may be mutable.
    payload = EMPTY_PAYLOAD
    """The request as the frontier stores it; the attributes below change with each redirect, this one does not."""
    method = "GET"
    body = b""
    extra_headers: dict[str, str] | None = None
    chain: tuple[tuple[str, int], ...] = ()
    """URL and status of each redirect."""
    cookies: Mapping[str, str] = MappingProxyType({})
    content_encoding: str | None = None
    """Python codec of the fetched page, if it is HTML whose main content is wanted; else None."""
    _headers: tuple[tuple[str, str], ...] | None = None
    """Result of `headers` until the next redirect."""
    listed_pages: int | None = None
    """Number of pages that the fetched sitemap lists. None: it is an index, or nothing was fetched."""
    session: "SiteSession | None" = None
    """Session that the requests belong to. None: they stand alone."""
    has_new_cookies = False
    """True: the latest response has changed the session's cookies."""
    login_number: int = -1
    """Number of the session's login by which the first request was sent: a redirect to the login may be followed when
    another page has renewed the session. -1: none was sent."""
    sent_by: int = -1
    """Number of the login by which the latest request was sent. -1: none was."""
    opened: Any = None
    """Result of the spider's `on_page`."""
    page_error: BaseException | None = None
    """Exception of the spider's `on_page`. None: there was none."""
    is_shell = False
    """True: the response is empty until scripts build it."""
    wires: tuple[WireExchange, ...] = ()
    """Raw bytes of each exchange, if an output wants them."""

    def __init__(self, lease: Lease, context: Context) -> None:
        """Raises msgspec.ValidationError for a payload in an unknown format."""
        self.lease = lease
        self.start = lease.start
        """Time at which the next request is to start; monotonic."""
        self.context = context
        self.url = lease.url
        self.proxy = context.proxy
        """Proxy of the next request, as a text for `parse_proxy`. `WorkerProxies` chooses it where the crawl has
        several. None: no proxy."""
        self.request_id = lease.request_id
        self.attrs: dict[str, Any] | None = context.terms.attrs
        if lease.payload is not None:
            self._unpack(lease.payload)

    def _unpack(self, packed: bytes) -> None:
        """Take over a payload: a request that is more than the GET of a URL, or that has followed redirects."""
        self.payload = payload = unpack(packed)
        self.url = payload.location or self.url
        self.method = payload.method
        self.body = payload.body
        self.extra_headers = payload.headers if payload.asset is None else asset_headers(payload.asset, self.url)
        self.chain = tuple(payload.chain)
        self.cookies = payload.cookies or {}
        self.request_id = payload.request_id or self.request_id
        if payload.attrs is not None:
            self.attrs = dict(payload.attrs)

    def request(self, *, keep_wire: bool) -> FetchRequest:
        """Return the next request for the HTTP client. `keep_wire`: its response is to have the raw bytes."""
        context = self.context
        request = FetchRequest(
            self.url,
            self.method,
            self.headers(),
            self.body,
            self.proxy,
            context.terms.insecure,
            bool(context.private_hosts) and host(self.url) in context.private_hosts,
            keep_wire,
            context.guard_proxy,
        )
        if self.session is not None:
            self.sent_by = self.session.number
            if self.login_number < 0:
                self.login_number = self.sent_by
            self.session.add_to(request)
        return request

    def request_for(self, url: str) -> FetchRequest:
        """Return a GET of a URL that the page loads in a browser, with what the crawl sends to it."""
        request = self.login_request(url)
        if self.session is not None:
            self.session.add_to(request)
        return request

    def login_request(self, url: str) -> FetchRequest:
        """Return a GET of a URL with what the crawl sends to it, without what its session adds."""
        context = self.context
        headers, cookie = context.headers.for_url(url)
        return FetchRequest(
            url,
            headers=headers if cookie is None else (*headers, ("Cookie", cookie)),
            proxy=self.proxy,
            insecure=context.terms.insecure,
            allow_private=bool(context.private_hosts) and host(url) in context.private_hosts,
            guard_proxy=context.guard_proxy,
        )

    def page_load(self, allows: Callable[[FetchRequest], Awaitable[bool]], reason: str) -> "PageLoad":
        """Return the rules for what the page loads in a browser. `allows`: robots.txt. `reason`: why it is rendered, as
        `render_reason` returns it."""
        from gossamer.fetch.backend import PageLoad  # imported late: most crawls render no page

        session, number = self.session, self.sent_by
        given = () if session is None else session.script_cookies(self.url)
        because, _, why = reason.partition(":")
        return PageLoad(
            self.context.run.crawl.id.token,
            registered_domain(host(self.url)),
            self.request_for,
            allows,
            because,
            why=why,
            in_lane=self.lease.render,
            captures=self.context.captures,
            screenshot=self.context.terms.render_screenshot,
            learns=self.context.terms.render_auto,
            steps=self.context.terms.render_steps,
            terms=self.context.terms.render_terms,
            session="" if session is None else session.key,
            script_cookies=given,
            on_open=self._use_page if type(self.context.spider).on_page is not Spider.on_page else None,
            on_response=None if session is None else partial(session.receive, number=number),
            merge_cookies=None if session is None else session.merge_cookies,
            on_script_cookies=None if session is None else partial(session.receive_from_scripts, given, number=number),
        )

    async def _use_page(self, tab: "OpenPage") -> None:
        """Let the spider use the page, and keep its result, or its exception, for `parse`."""
        try:
            self.opened = await self.context.spider.on_page(tab)
        except (BrowserError, PageEnded):
            raise
        except (Exception, SystemExit) as error:  # as of `parse`
            self.page_error = error

    @property
    def is_conditional(self) -> bool:
        """True: the response may be that the page is as it was (304)."""
        return any(name.lower() in _CONDITIONAL for name, _ in self.headers())

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of the next request: the crawl's, as far as this URL may receive them, overridden by the
        request's own, and the cookies."""
        if self._headers is None:
            self._headers = self._make_headers()
        return self._headers

    def _make_headers(self) -> tuple[tuple[str, str], ...]:
        headers, cookie = self.context.headers.for_url(self.url)
        if cookie is None and not self.extra_headers and not self.cookies:  # most requests
            return headers
        if self.extra_headers:
            replaced = {name.lower() for name in self.extra_headers} | OWNED  # the HTTP client writes those itself
            cookie = None if "cookie" in replaced else cookie
            of_crawl = tuple(pair for pair in headers if pair[0].lower() not in replaced)
            headers = of_crawl + tuple(pair for pair in self.extra_headers.items() if pair[0].lower() not in OWNED)
        if cookie or self.cookies:
            pairs = [cookie] if cookie else []
            pairs += [f"{name}={value}" for name, value in self.cookies.items()]
            headers = (*headers, ("Cookie", "; ".join(pairs)))
        return headers

    def redirect(self, status: int, headers: Headers, target: str) -> None:
        """Continue with `target`, after a response at `url` with this status and these headers."""
        self._headers = None
        self.cookies = cookies_after(self.url, headers, target, self.cookies)
        method = method_after(status, self.method)
        if method != self.method:  # a changed method has no body, and so no headers that describe one
            self.method, self.body = method, b""
            if self.extra_headers:
                self.extra_headers = {
                    name: value for name, value in self.extra_headers.items() if not name.lower().startswith("content-")
                }
        if self.extra_headers:  # validators are those of the page that has redirected
            self.extra_headers = {
                name: value for name, value in self.extra_headers.items() if name.lower() not in _CONDITIONAL
            }
        self.chain = (*self.chain, (self.url, status))
        self.url = target

    @property
    def render_reason(self) -> str:
        """Reason why a browser builds the page, as `Payload.render` has it, or `asked`. Empty: it does not."""
        if self.payload.asset or self.payload.sitemap:
            return ""
        if self.lease.render:
            return self.payload.render or "asked"
        return self.context.render_reason(self.url)

    def packed_for_browser(self, why: str) -> bytes | None:
        """Return the payload from which a worker with a browser continues. `why`: as in `Payload.render`."""
        payload = unpack(self.packed()) if self.chain else self.payload
        return pack(msgspec.structs.replace(payload, render=why))

    def packed_again(self) -> bytes:
        """Return the payload by which the whole attempt is repeated, because its session had ended."""
        packed = pack(msgspec.structs.replace(self.payload, renewals=self.payload.renewals + 1))
        assert packed is not None
        return packed

    def packed_refused(self, text: int) -> bytes | None:
        """Return the payload of the attempt that has got the page of many other paths. `text`: its fingerprint."""
        return pack(msgspec.structs.replace(self.payload, repeated=text))

    @property
    def requested_url(self) -> str:
        """URL that was requested first, before all redirects."""
        return self.chain[0][0] if self.chain else self.url

    @property
    def was_sent(self) -> bool:
        """True: a site has seen a request of this attempt, which then has followed a redirect."""
        return len(self.chain) > len(self.payload.chain)

    def fingerprint(self, url: str) -> int:
        """Return the fingerprint of the request as it would be sent to this URL."""
        return self.context.fingerprint(url, method=self.method, body=self.body)

    def is_seed(self, pages: int) -> bool:
        """Return whether a person named this URL to start from. `pages`: number of pages that this process has fetched.

        Pages that a sitemap lists have the depth of seeds. With sitemaps, a seed is therefore only known as long as
        there is no page: a sitemap is read after the first one.
        """
        may_be_listed = self.payload.sitemap or self.payload.listed or (self.context.terms.sitemaps and pages > 0)
        return self.lease.depth == 0 and not may_be_listed

    def packed(self, *, moved: bool = False, sitemap: bool = False) -> bytes:
        """Return the payload from which another worker continues at this point. `sitemap`: the response is to be read
        as a sitemap.

        `moved`: the request becomes another entry, under another domain. It then carries its own id, but neither
        cookies nor secret headers, which were for the former domain.
        """
        headers = self.extra_headers
        if moved and headers:
            secret = self.context.headers.secrets.names
            headers = {name: value for name, value in headers.items() if name.lower() not in secret} or None
        packed = pack(
            Payload(
                method=self.method,
                body=self.body,
                headers=headers,
                chain=self.chain,
                location=self.url,
                cookies=None if moved else dict(self.cookies) or None,
                request_id=self.request_id if moved else self.payload.request_id,
                attrs=self.payload.attrs,
                sitemap=sitemap or self.payload.sitemap,
                renewals=self.payload.renewals,
                render=self.payload.render.partition(":")[0] if moved else self.payload.render,
                browser_ends=0 if moved else self.payload.browser_ends,
                listed=self.payload.listed,
                asset=self.payload.asset,
            )
        )
        assert packed is not None  # a payload with a location is never empty
        return packed
