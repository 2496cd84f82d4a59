"""What a crawl request says, put on Scrapy's request: headers, cookie, meta."""

import contextlib
from collections.abc import Mapping
from typing import Any

from scrapy import Request

from gossamer.errors import BadUrl
from gossamer.fetch.request import OWNED
from gossamer.model.crawl import Terms
from gossamer.model.payload import Payload
from gossamer.model.request import Lease
from gossamer.policy.secrets import SecretHeaders, has_secrets
from gossamer.policy.urls import canonical

FROM_TERMS = (
    "appid", "crawlid", "url", "useragent", "cookie", "curdepth", "maxdepth", "expires", "priority", "domain_max_pages",
    "allowed_domains", "allow_regex", "deny_regex", "deny_extensions",
)  # fmt: skip
"""Keys of a leased request's meta that say what the submission says. Children have them from their own lease."""

SPENT = (
    "download_slot", "download_latency", "download_timeout", "retry_times", "max_retry_times", "redirect_times",
    "redirect_ttl", "redirect_urls", "redirect_reasons", "proxy", "_auth_proxy", "dont_obey_robotstxt",
    "is_start_request",
)  # fmt: skip
"""Keys that belong to one exchange: a child that copies its parent's meta must not go on with them."""


def under_terms(request: Request, lease: Lease, payload: Payload, *, ignore_robots: bool) -> Request:
    """The request with what its submission and its lease say. What the request says itself counts more."""
    terms, crawl = lease.terms, lease.run.crawl.id
    meta: dict[str, Any] = request.meta
    if payload.location is not None:  # the other lane has followed redirects before this one got it
        request = request.replace(url=payload.location)
        meta = request.meta
        meta["redirect_urls"] = [url for url, _ in payload.chain]
        meta["redirect_reasons"] = [status for _, status in payload.chain]
        meta["redirect_times"] = len(payload.chain)
    headers, cookie = _allowed(request, terms)
    attrs = payload.attrs if payload.attrs is not None else meta.get("attrs", terms.attrs)
    meta.update(
        appid=crawl.appid,
        crawlid=crawl.crawlid,
        spiderid=lease.spider,
        url=lease.url,
        attrs=attrs,
        useragent=terms.useragent,
        cookie=cookie,
        depth=lease.depth,
        curdepth=lease.depth,
        maxdepth=terms.maxdepth,
        expires=terms.expires,
        priority=lease.priority,
        domain_max_pages=terms.domain_max_pages,
        allowed_domains=_list(terms.allowed_domains),
        allow_regex=_list(terms.allow_regex),
        deny_regex=_list(terms.deny_regex),
        deny_extensions=_list(terms.deny_extensions),
    )
    if terms.useragent:
        request.headers.setdefault("User-Agent", terms.useragent)
    for name, value in headers.items():
        if name.lower() not in OWNED:
            request.headers.setdefault(name, value)
    cookies = cookie_of(cookie, payload.cookies)
    if cookies:
        request.headers.setdefault("Cookie", cookies)
    if terms.proxy:
        meta.setdefault("proxy", terms.proxy)
    if terms.timeout_seconds:
        meta.setdefault("download_timeout", terms.timeout_seconds)
    if ignore_robots and terms.ignore_robots:
        meta["dont_obey_robotstxt"] = True
    return request


def without_secrets(request: Request, terms: Terms) -> None:
    """Take the crawl's cookie and secret headers off a request that was made from another, if its URL may not get them.

    Scrapy's redirects, and middlewares that replace a request, copy its headers.
    """
    headers, cookie = _allowed(request, terms)
    for name, value in (terms.headers or {}).items():
        if name not in headers and request.headers.getlist(name) == [value.encode(request.encoding)]:
            del request.headers[name]
    if terms.cookie and cookie is None:
        sent, own = request.headers.get(b"Cookie") or b"", terms.cookie.encode(request.encoding)
        if sent == own or sent.startswith(own + b"; "):
            del request.headers[b"Cookie"]


def _allowed(request: Request, terms: Terms) -> tuple[dict[str, str], str | None]:
    """The crawl's headers and its cookie, without the secret ones where the request's URL may not get them."""
    headers = terms.headers or {}
    if not has_secrets(terms):
        return headers, None
    secrets = SecretHeaders(terms)
    with contextlib.suppress(BadUrl):
        if secrets.may_go_to(canonical(request.url)):
            return headers, terms.cookie
    return {name: value for name, value in headers.items() if name.lower() not in secrets.names}, None


def cookie_of(cookie: str | None, more: Mapping[str, str] | None) -> str:
    """The value of a Cookie header; empty: none."""
    return "; ".join([*([cookie] if cookie else []), *(f"{name}={value}" for name, value in (more or {}).items())])


def stripped(request: Request, parent: Request, lease: Lease) -> Request:
    """A child without what its own lease will give it, and without what its parent has spent."""
    meta, headers = request.meta, request.headers
    superfluous = [name for name in (*FROM_TERMS, *SPENT) if name in meta]
    sent = [
        name
        for name in (b"User-Agent", b"Cookie", b"Accept-Encoding", *map(str.encode, lease.terms.headers or ()))
        if name in headers and headers.getlist(name) == parent.headers.getlist(name)
    ]
    inherits = "attrs" not in meta and (attrs := parent.meta.get("attrs")) != lease.terms.attrs
    if not (superfluous or sent or inherits):
        return request
    child = request.copy()
    for key in superfluous:
        del child.meta[key]
    for name in sent:
        del child.headers[name]
    if inherits:
        child.meta["attrs"] = attrs
    return child


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)
