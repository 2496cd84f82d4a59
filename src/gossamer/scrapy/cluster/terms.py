"""What a crawl request says, put on Scrapy's request: headers, cookie, meta."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scrapy import Request, Spider

from gossamer.errors import BadUrl
from gossamer.fetch.request import OWNED
from gossamer.frontier.base import Lane
from gossamer.model.crawl import QueryOrder, Terms
from gossamer.model.request import Lease, Payload, pack
from gossamer.policy.secrets import SecretHeaders, has_secrets
from gossamer.policy.urls import canonical
from gossamer.scrapy.entries import MOST_PRIORITY, SPIDER_KEY, EntryEncoder, FrontierEntry, RequestKey, _neutral
from gossamer.scrapy.live import CURRENT, LiveRequests
from gossamer.worker.page import child_priority

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


_NEUTRAL_META = frozenset(("attrs", "depth", SPIDER_KEY))


class ClusterEntries(EntryEncoder):
    """A child is one deeper than its parent and ten lower, where the spider does not say otherwise."""

    def of(self, request: Request, name: RequestKey) -> FrontierEntry:
        """Raises Unstorable."""
        parent = CURRENT.get()
        if parent is None or parent.moving:
            return super().of(request, name)
        child = stripped(request, parent.request, parent.lease)
        entry = super().of(child, name)
        lease = parent.lease
        depth = lease.depth if is_handover(request, parent) else lease.depth + 1
        priority = max(-MOST_PRIORITY, min(_priority(request, lease.priority), MOST_PRIORITY))
        if name.spider == self._spider.name and _is_plain(child, self._spider):
            # Either lane may run a spider of this name.
            entry = replace(entry, payload=pack(_neutral(child)))
        return replace(entry, priority=priority, depth=min(depth, 2**16 - 1))

    def _mark(self, request: Request, url: str) -> int:
        # Fast workers that run a spider of this name know nothing of the project's fingerprinter.
        if Lane.FAST in self._frontier.spiders.lanes(self._spider.name):
            return self._outside(self._spider.name, request, url)
        return super()._mark(request, url)

    def _outside(self, spider: str, request: Request, url: str) -> int:
        parent = CURRENT.get()
        order = QueryOrder.SIGNIFICANT if parent is None else parent.lease.terms.query_order
        return self._frontier.spiders.fingerprint(
            spider, url, method=request.method, body=request.body, query_order=order
        )


def is_handover(request: Request, parent: LiveRequests) -> bool:
    """Whether it is the very page at hand, for another spider: no link is followed, so it is no deeper."""
    spider = request.meta.get(SPIDER_KEY)
    if spider is None or spider == parent.lease.spider:
        return False
    here = {parent.lease.url, parent.request.url, getattr(parent.answer, "url", "")}
    if request.url in here:
        return True
    try:
        return canonical(request.url) in here
    except BadUrl:
        return False


def _priority(request: Request, parent: int) -> int:
    if request.priority:
        return request.priority
    said = request.meta.get("priority")  # Scrapy Cluster's way to say it
    return said if type(said) is int else child_priority(parent)


def _is_plain(request: Request, spider: Spider) -> bool:
    callback = request.callback
    return (
        type(request) is Request
        and (callback is None or callback == spider.parse)
        and not (request.errback or request.cookies or request.cb_kwargs or request.flags)
        # A wanderer's next page is added unfiltered; that it is fetched needs no mark on the request itself.
        and (not request.dont_filter or getattr(spider, "ignores_maxdepth", False))
        and request.encoding == "utf-8"
        and _NEUTRAL_META.issuperset(request.meta)
        and all(len(request.headers.getlist(name)) == 1 for name in request.headers)
    )
