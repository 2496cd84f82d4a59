"""Applies the terms of a crawl request (its options: headers, cookie, limits, ...) to Scrapy's requests, and to those
that spiders make of them.

Fixed: the other names of meta's keys, which are Scrapy's and Scrapy Cluster's; where secrets may go
(`_permitted_headers`); and the fingerprints of requests for another spider or for one that Gossamer's own worker (the
fast lane) also runs, which that worker computes in the same way.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scrapy import Request, Spider

from gossamer.errors import BadUrl
from gossamer.fetch.proxies import first_proxy
from gossamer.fetch.request import OWNED
from gossamer.frontier.base import Lane
from gossamer.model.crawl import QueryOrder, Terms
from gossamer.model.request import MAX_DEPTH, MAX_PRIORITY, Lease, Payload, pack
from gossamer.policy.priorities import child_priority
from gossamer.policy.secrets import SecretHeaders, has_secrets
from gossamer.policy.urls import canonical
from gossamer.scrapy.entries import (
    SPIDER_KEY,
    EntryEncoder,
    FrontierEntry,
    RequestKey,
    neutral_payload,
)
from gossamer.scrapy.leasing import CURRENT_LEASE, ActiveLease

_TERMS_META = (
    "appid", "crawlid", "url", "useragent", "cookie", "curdepth", "maxdepth", "expires", "priority", "domain_max_pages",
    "allowed_domains", "allow_regex", "deny_regex", "deny_extensions",
)  # fmt: skip
"""Keys of a leased request's meta that `apply_terms` sets, without `attrs`, `spiderid` and `depth`, which a child (a
request that the spider makes) may have of its own. It gets these from its own lease. Scrapy Cluster's names: fixed; a
key that is added to `apply_terms` belongs here, too."""

_EXCHANGE_META = (
    "download_slot", "download_latency", "download_timeout", "retry_times", "max_retry_times", "redirect_times",
    "redirect_ttl", "redirect_urls", "redirect_reasons", "proxy", "_auth_proxy", "dont_obey_robotstxt",
    "is_start_request",
)  # fmt: skip
"""Scrapy's keys of meta that concern one request only. A child that copies its parent's meta must not have them: it
would get a proxy or the retries of another request. More may be added."""


def apply_terms(request: Request, lease: Lease, payload: Payload, *, may_ignore_robots: bool) -> Request:
    """Return the request with what its crawl request and its lease say. The request's own values override them.

    A lease is a request that the frontier has given to this process for a while; `payload` is its stored form.
    `may_ignore_robots`: the operator lets crawl requests ignore robots.txt.
    """
    terms, crawl = lease.terms, lease.run.crawl.id
    meta: dict[str, Any] = request.meta
    if payload.location is not None:  # a fast worker followed redirects before this process got the request
        request = request.replace(url=payload.location)
        meta = request.meta
        meta["redirect_urls"] = [url for url, _ in payload.chain]
        meta["redirect_reasons"] = [status for _, status in payload.chain]
        meta["redirect_times"] = len(payload.chain)
    headers, cookie = _permitted_headers(request, terms)
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
        if name.lower() not in OWNED:  # headers that the downloader sets, such as Host
            request.headers.setdefault(name, value)
    if cookies := _cookie_header(cookie, payload.cookies):
        request.headers.setdefault("Cookie", cookies)
    if proxy := first_proxy(terms.proxy):
        meta.setdefault("proxy", proxy.partition("\n")[0])
    if terms.timeout_seconds:
        meta.setdefault("download_timeout", terms.timeout_seconds)
    if may_ignore_robots and terms.ignore_robots:
        meta["dont_obey_robotstxt"] = True
    return request


def remove_secrets(request: Request, terms: Terms) -> None:
    """Remove the crawl's cookie and secret headers from a request whose URL must not get them.

    Call it for a request that replaces another: Scrapy's redirects, and middlewares, copy the headers.
    """
    headers, cookie = _permitted_headers(request, terms)
    for name, value in (terms.headers or {}).items():
        if name not in headers and request.headers.getlist(name) == [value.encode(request.encoding)]:
            del request.headers[name]
    if terms.cookie and cookie is None:
        sent, own = request.headers.get(b"Cookie") or b"", terms.cookie.encode(request.encoding)
        if sent == own or sent.startswith(own + b"; "):  # as `_cookie_header` joins it with further cookies
            del request.headers[b"Cookie"]


def _permitted_headers(request: Request, terms: Terms) -> tuple[dict[str, str], str | None]:
    """Return the crawl's headers and cookie, without the secret ones where the request's URL must not get them.

    In doubt (a URL that cannot be parsed) it gets no secret: one that was sent to another site cannot be called back.
    """
    headers = terms.headers or {}
    if not has_secrets(terms):  # the cookie counts as a secret, so there is none either
        return headers, None
    secrets = SecretHeaders(terms)
    with contextlib.suppress(BadUrl):
        if secrets.may_go_to(canonical(request.url)):
            return headers, terms.cookie
    return {name: value for name, value in headers.items() if name.lower() not in secrets.names}, None


def _cookie_header(cookie: str | None, further: Mapping[str, str] | None) -> str:
    """Return the value of a Cookie header. Empty: there is no cookie."""
    own = [cookie] if cookie else []
    return "; ".join([*own, *(f"{name}={value}" for name, value in (further or {}).items())])


def _without_inherited(request: Request, parent: Request, lease: Lease) -> Request:
    """Return the child without copies of its parent's terms and exchange: its own lease gives it those.

    It inherits the parent's `attrs` (the user's own data) where they are not those of the terms."""
    meta, headers = request.meta, request.headers
    superfluous_keys = [key for key in (*_TERMS_META, *_EXCHANGE_META) if key in meta]
    from_terms = (b"User-Agent", b"Cookie", b"Accept-Encoding", *map(str.encode, lease.terms.headers or ()))
    copied_headers = [
        name for name in from_terms if name in headers and headers.getlist(name) == parent.headers.getlist(name)
    ]
    parent_attrs = parent.meta.get("attrs")
    inherits_attrs = "attrs" not in meta and parent_attrs != lease.terms.attrs
    if not (superfluous_keys or copied_headers or inherits_attrs):
        return request
    child = request.copy()
    for key in superfluous_keys:
        del child.meta[key]
    for name in copied_headers:
        del child.headers[name]
    if inherits_attrs:
        child.meta["attrs"] = parent_attrs
    return child


def _list(values: tuple[str, ...] | None) -> list[str] | None:
    return None if values is None else list(values)


_NEUTRAL_META = frozenset(("attrs", "depth", SPIDER_KEY))
"""Keys of meta that a neutral payload (one that Gossamer's own worker reads, too) or the frontier's entry keeps. A
further key here would be lost without notice."""


class ClusterEntryEncoder(EntryEncoder):
    """Encodes requests under their parent's terms. It overrides what EntryEncoder, which knows no terms, does.

    A child is one level deeper than its parent; its priority is `child_priority`'s unless the spider sets one.
    """

    def entry(self, request: Request, key: RequestKey) -> FrontierEntry:
        """Return the request's entry. Raises Unstorable."""
        parent = CURRENT_LEASE.get()
        if parent is None or parent.replacing:
            return super().entry(request, key)
        child = _without_inherited(request, parent.request, parent.lease)
        entry = super().entry(child, key)
        lease = parent.lease
        depth = lease.depth if is_handover(request, parent) else lease.depth + 1
        priority = max(-MAX_PRIORITY, min(_priority(request, lease.priority), MAX_PRIORITY))
        if key.spider == self._spider.name and _is_plain(child, self._spider):
            # Gossamer's own workers may run a spider of this name, too; they understand neutral payloads only.
            entry = replace(entry, payload=pack(neutral_payload(child)))
        return replace(entry, priority=priority, depth=min(depth, MAX_DEPTH))

    def _own_fingerprint(self, request: Request, url: str) -> int:
        """Override of EntryEncoder: the common fingerprint where Gossamer's own workers run a spider of this name."""
        # They do not know the project's fingerprinter. The fast lane is all of Gossamer's own workers.
        if Lane.FAST in self._frontier.spiders.lanes(self._spider.name):
            return self._common_fingerprint(self._spider.name, request, url)
        return super()._own_fingerprint(request, url)

    def _common_fingerprint(self, spider: str, request: Request, url: str) -> int:
        """Override of EntryEncoder: the fingerprint also follows the parent's terms."""
        parent = CURRENT_LEASE.get()
        # Whether URLs that differ only in the order of their query parameters are one page.
        query_order = QueryOrder.SIGNIFICANT if parent is None else parent.lease.terms.query_order
        return self._frontier.spiders.fingerprint(
            spider, url, method=request.method, body=request.body, query_order=query_order
        )


def is_handover(request: Request, parent: ActiveLease) -> bool:
    """Return whether the request hands the parent's own page to another spider. Such a request is no deeper."""
    spider = request.meta.get(SPIDER_KEY)
    if spider is None or spider == parent.lease.spider:
        return False
    page_urls = {parent.lease.url, parent.request.url, getattr(parent.result, "url", "")}
    if request.url in page_urls:
        return True
    try:
        return canonical(request.url) in page_urls
    except BadUrl:
        return False


def _priority(request: Request, parent_priority: int) -> int:
    """Return the priority that the spider has set for a child; else the one below its parent's."""
    if request.priority:
        return request.priority
    priority = request.meta.get("priority")  # as Scrapy Cluster's spiders set it
    return priority if type(priority) is int else child_priority(parent_priority)


def _is_plain(request: Request, spider: Spider) -> bool:
    """Return whether a neutral payload loses nothing of the request. A property of Request that is not checked here is
    lost, so a new one must be added."""
    callback = request.callback
    return (
        type(request) is Request
        and (callback is None or callback == spider.parse)
        and not (request.errback or request.cookies or request.cb_kwargs or request.flags)
        # WanderingSpider's requests are added unfiltered; the payload need not say so.
        and (not request.dont_filter or getattr(spider, "ignores_maxdepth", False))
        and request.encoding == "utf-8"
        and _NEUTRAL_META.issuperset(request.meta)
        and all(len(request.headers.getlist(name)) == 1 for name in request.headers)
    )
