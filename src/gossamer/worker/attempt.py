"""One request on its way: where it began, where redirects have led it, and what goes on the wire next."""

from collections.abc import Sequence
from typing import Any

from gossamer.fetch.exchange import FetchRequest
from gossamer.fetch.request import OWNED
from gossamer.model.record import WireExchange
from gossamer.model.request import Lease, Payload, pack, unpack
from gossamer.policy.secrets import REDACTED
from gossamer.policy.urls import host
from gossamer.worker.context import Context

REDIRECTS = frozenset((301, 302, 303, 307, 308))
MAX_HOPS = 10
"""As many as are followed for one request."""

Headers = Sequence[tuple[str, str]]


def location(headers: Headers) -> str | None:
    """The value of the Location header; None where there is none."""
    return next((value for name, value in headers if name.lower() == "location"), None)


def method_after(status: int, method: str) -> str:
    """The method of the next request (Fetch standard, HTTP-redirect fetch). Where it changes, the body goes."""
    if status == 303 and method not in ("GET", "HEAD"):
        return "GET"
    if status in (301, 302) and method == "POST":
        return "GET"
    return method


def cookies_after(url: str, headers: Headers, to: str, cookies: dict[str, str]) -> dict[str, str]:
    """The cookies to send on to `to`: those that travelled so far and those the redirect at `url` set.

    They live for one chain of redirects. A cookie without Domain stays with its host (RFC 6265, 5.3), so on another
    host only those go on that were set for a domain of both.
    """
    here, there = host(url), host(to)
    kept = dict(cookies) if here == there else {}
    for name, value in headers:
        if name.lower() != "set-cookie":
            continue
        pair, *attributes = value.split(";")
        key, equals, content = pair.strip().partition("=")
        if not equals or not key:
            continue
        attributes_set = {word.strip().partition("=")[0].lower(): word.strip().partition("=")[2] for word in attributes}
        if attributes_set.get("max-age", "1").strip() in ("0", "-1") or not _reaches(
            attributes_set.get("domain", ""), here, there
        ):
            kept.pop(key, None)
        elif "secure" not in attributes_set or to.startswith("https:"):
            kept[key] = content
    return kept


def _reaches(domain: str, here: str, there: str) -> bool:
    domain = domain.strip().removeprefix(".").lower()
    if not domain:
        return here == there
    return all(name == domain or name.endswith(f".{domain}") for name in (here, there))


class Attempt:
    """Made anew for each attempt. `url` is what is asked next; `chain` what redirected before it."""

    __slots__ = (
        "attrs",
        "body",
        "chain",
        "context",
        "cookies",
        "extra_headers",
        "lease",
        "method",
        "payload",
        "request_id",
        "start",
        "url",
        "wires",
    )

    def __init__(self, lease: Lease, context: Context) -> None:
        """Raises msgspec.ValidationError for a payload of another make."""
        payload = unpack(lease.payload)
        self.lease = lease
        self.start = lease.start
        """When the next request is to start; monotonic."""
        self.context = context
        self.payload = payload
        self.url = payload.location or lease.url
        self.method = payload.method
        self.body = payload.body
        self.extra_headers = payload.headers
        self.chain: list[tuple[str, int]] = list(payload.chain)
        self.cookies: dict[str, str] = dict(payload.cookies or {})
        self.request_id = payload.request_id or lease.request_id
        self.attrs: dict[str, Any] | None = context.terms.attrs if payload.attrs is None else dict(payload.attrs)
        self.wires: list[WireExchange] = []

    def request(self, *, keep_wire: bool) -> FetchRequest:
        """The next request as the client sends it."""
        context = self.context
        return FetchRequest(
            self.url,
            self.method,
            self.headers(),
            self.body,
            context.proxy,
            context.terms.insecure,
            bool(context.private_hosts) and host(self.url) in context.private_hosts,
            keep_wire,
            context.guard_proxy,
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The crawl's headers as far as this URL may get them, the request's own in their place, and the cookies."""
        headers, cookie = self.context.headers.for_url(self.url)
        if self.extra_headers:
            own = {name.lower() for name in self.extra_headers} | OWNED
            cookie = None if "cookie" in own else cookie
            headers = tuple(pair for pair in headers if pair[0].lower() not in own) + tuple(
                pair for pair in self.extra_headers.items() if pair[0].lower() not in OWNED
            )
        if cookie or self.cookies:
            pairs = [cookie] if cookie else []
            pairs += [f"{name}={value}" for name, value in self.cookies.items()]
            headers = (*headers, ("Cookie", "; ".join(pairs)))
        return headers

    def shown_headers(self) -> dict[str, list[str]]:
        """The request headers for a record, without the values that it may not show."""
        hidden = self.context.hidden_headers
        return {name: [REDACTED if name.lower() in hidden else value] for name, value in self.headers()}

    def redirect(self, status: int, headers: Headers, target: str) -> None:
        """Go on to `target`."""
        self.cookies = cookies_after(self.url, headers, target, self.cookies)
        method = method_after(status, self.method)
        if method != self.method:
            self.method, self.body = method, b""
            if self.extra_headers:
                self.extra_headers = {
                    name: value for name, value in self.extra_headers.items() if not name.lower().startswith("content-")
                }
        self.chain.append((self.url, status))
        self.url = target

    def packed(self, *, moved: bool = False) -> bytes:
        """The payload from which whoever takes this over goes on where it stands.

        `moved`: it goes on as another entry, which must know the request's id, and without cookies and secret headers
        of its own: those were for another domain.
        """
        headers = self.extra_headers
        if moved and headers:
            personal = self.context.headers.secrets.names
            headers = {name: value for name, value in headers.items() if name.lower() not in personal} or None
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
            )
        )
        assert packed is not None  # it has a location
        return packed
