"""Scrapy's default request fingerprint, computed in a fraction of the time."""

from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.utils.request import RequestFingerprinter as ScrapysOwn

from gossamer.policy.scrapy_urls import clean_form, digest


class RequestFingerprinter:
    """Returns the same bytes as Scrapy's own fingerprinter, so that a project may change from one to the other.

    Most URLs need no parser to be brought into w3lib's canonical form. All others, and requests with `verbatim_url` in
    their meta, are left to Scrapy's own.
    """

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "RequestFingerprinter":
        return cls(crawler)

    def __init__(self, crawler: Crawler | None = None) -> None:
        self._scrapys = ScrapysOwn(crawler)

    def fingerprint(self, request: Request) -> bytes:
        """Return 20 bytes."""
        form = clean_form(request.url)
        if form is None or (request._meta and request._meta.get("verbatim_url")):
            return self._scrapys.fingerprint(request)
        return digest(form, method=request.method, body=request.body)


def sped_up(fingerprinter: Any) -> Any:
    """Return the fingerprinter to use in the place of a project's own: a fast one for Scrapy's default."""
    return RequestFingerprinter() if type(fingerprinter) is ScrapysOwn else fingerprinter
