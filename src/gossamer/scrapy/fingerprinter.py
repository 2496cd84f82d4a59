"""A request fingerprinter that knows a URL as the frontier does: by its canonical form, hashed fast."""

from typing import Any
from weakref import WeakKeyDictionary

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter as ScrapysOwn
from xxhash import xxh3_128_digest

from gossamer.errors import BadUrl
from gossamer.policy.urls import canonical


class RequestFingerprinter:
    """16 bytes for other components (HTTP cache, media pipelines), the same in every process and run.

    Method, canonical URL (WHATWG, without fragment) and body count, nothing else. Unlike Scrapy's own it leaves the
    query's order alone: `?a=1&b=2` and `?b=2&a=1` are two pages to a server, too. What is not on the web (`data:`,
    `file:`) gets Scrapy's fingerprint. XXH3 is no protection against an adversary; the frontier's own dedupe is keyed.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RequestFingerprinter":
        return cls(crawler)

    def __init__(self, crawler: Crawler | None = None) -> None:
        self._otherwise = ScrapysOwn(crawler)
        self._known: WeakKeyDictionary[Request, bytes] = WeakKeyDictionary()

    def fingerprint(self, request: Request) -> bytes:
        """May be repeated; the answer is remembered as long as the request lives."""
        known = self._known.get(request)
        if known is None:
            known = self._known[request] = self._made(request)
        return known

    def _made(self, request: Request) -> bytes:
        try:
            url = canonical(request.url)
        except BadUrl:
            return self._otherwise.fingerprint(request)
        return xxh3_128_digest(b"\0".join((request.method.encode(), url.encode(), request.body)))


def is_canonical(fingerprinter: Any) -> bool:
    """Whether it is Scrapy's own or ours: then both lanes know a URL by its canonical form. A project's own decides
    for itself what is the same."""
    return type(fingerprinter) in (ScrapysOwn, RequestFingerprinter)
