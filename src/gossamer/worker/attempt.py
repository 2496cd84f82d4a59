"""One attempt at a request: its lease, the redirects so far, and the next request to send.

A lease is a request that the frontier (the cluster's store of requests) has handed to this worker. Fixed: which cookies
and secret headers another host gets (none that were not meant for it); and the payload of `packed`, which the frontier
stores and workers of other versions read. Safe to change: MAX_HOPS, as it says.
"""

import re
from collections.abc import Sequence
from typing import Any

from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.request import OWNED
from gossamer.model.assets import Asset
from gossamer.model.record import WireExchange
from gossamer.model.request import Lease, Payload, pack, unpack
from gossamer.policy.secrets import REDACTED
from gossamer.policy.urls import host, origin
from gossamer.worker.context import Context

MAX_HOPS = 10
"""Redirects that are followed for one request. May be changed: each of them costs a hit (a request that counts against
the site's rate limit), and a chain of more fails. The commands `crawl` and `fetch` follow as many."""

Headers = Sequence[tuple[str, str]]


def method_after(status: int, method: str) -> str:
    """Return the method of the request after a redirect (Fetch standard, HTTP-redirect fetch). If it changes, the body
    is dropped."""
    if status == 303 and method not in ("GET", "HEAD"):
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method


_EXPIRED = re.compile(r"-\d+|0+")
"""Values of a cookie's Max-Age that remove it (RFC 6265, section 5.2.2)."""


def cookies_after(url: str, headers: Headers, to: str, cookies: dict[str, str]) -> dict[str, str]:
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

    __slots__ = (
        "attrs",
        "body",
        "chain",
        "content_encoding",
        "context",
        "cookies",
        "extra_headers",
        "lease",
        "method",
        "payload",
        "proxy",
        "request_id",
        "start",
        "url",
        "wires",
    )

    def __init__(self, lease: Lease, context: Context) -> None:
        """Raises msgspec.ValidationError for a payload in an unknown format."""
        payload = unpack(lease.payload)
        self.lease = lease
        self.start = lease.start
        """Time at which the next request is to start; monotonic."""
        self.context = context
        self.payload = payload
        """The request as the frontier stores it; the attributes below change with each redirect, this one does not."""
        self.url = payload.location or lease.url
        self.method = payload.method
        self.body = payload.body
        self.extra_headers = payload.headers if payload.asset is None else asset_headers(payload.asset, self.url)
        self.chain: list[tuple[str, int]] = list(payload.chain)
        """URL and status of each redirect."""
        self.cookies: dict[str, str] = dict(payload.cookies or {})
        self.proxy = context.proxy
        """Proxy of the next request, as a text for `parse_proxy`. `WorkerProxies` chooses it where the crawl has
        several. None: no proxy."""
        self.request_id = payload.request_id or lease.request_id
        self.attrs: dict[str, Any] | None = context.terms.attrs if payload.attrs is None else dict(payload.attrs)
        self.content_encoding: str | None = None
        """Python codec of the fetched page, if it is HTML whose main content is wanted; else None."""
        self.wires: list[WireExchange] = []
        """Raw bytes of each exchange, if an output wants them."""

    def request(self, *, keep_wire: bool) -> FetchRequest:
        """Return the next request for the HTTP client. `keep_wire`: its response is to have the raw bytes."""
        context = self.context
        return FetchRequest(
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

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return the headers of the next request: the crawl's, as far as this URL may receive them, overridden by the
        request's own, and the cookies."""
        headers, cookie = self.context.headers.for_url(self.url)
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

    def shown_headers(self) -> dict[str, list[str]]:
        """Return the request headers for a record, with secret values redacted."""
        hidden = self.context.hidden_headers
        if not hidden:
            return {name: [value] for name, value in self.headers()}
        return {name: [REDACTED if name.lower() in hidden else value] for name, value in self.headers()}

    def redirect(self, status: int, headers: Headers, target: str) -> None:
        """Continue with `target`, after a response at `url` with this status and these headers."""
        self.cookies = cookies_after(self.url, headers, target, self.cookies)
        method = method_after(status, self.method)
        if method != self.method:  # a changed method has no body, and so no headers that describe one
            self.method, self.body = method, b""
            if self.extra_headers:
                self.extra_headers = {
                    name: value for name, value in self.extra_headers.items() if not name.lower().startswith("content-")
                }
        self.chain.append((self.url, status))
        self.url = target

    def is_seed(self, pages: int) -> bool:
        """Return whether a person named this URL to start from. `pages`: number of pages that this process has fetched.

        Pages that a sitemap lists have the depth of seeds. With sitemaps, a seed is therefore only known as long as
        there is no page: a sitemap is read after the first one.
        """
        may_be_listed = self.payload.sitemap or (self.context.terms.sitemaps and pages > 0)
        return self.lease.depth == 0 and not may_be_listed

    def packed(self, *, moved: bool = False) -> bytes:
        """Return the payload from which another worker continues at this point.

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
                chain=tuple(self.chain),
                location=self.url,
                cookies=None if moved else self.cookies or None,
                request_id=self.request_id if moved else self.payload.request_id,
                attrs=self.payload.attrs,
                sitemap=self.payload.sitemap,
                asset=self.payload.asset,
            )
        )
        assert packed is not None  # a payload with a location is never empty
        return packed
