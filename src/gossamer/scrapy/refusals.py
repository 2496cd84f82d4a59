"""Counts the responses of a crawl that are refusals by sites, in the stats; the spider gets them unchanged."""

import logging

from scrapy import Request
from scrapy.http import Response
from scrapy.statscollectors import StatsCollector

from gossamer.extract.encoding import content_type_of, is_html
from gossamer.extract.refusals import find_refusal
from gossamer.fetch.exchange import header_lines
from gossamer.model.record import PageRefusal
from gossamer.policy.refusals import RefusalFinder
from gossamer.policy.repeated_pages import RepeatedPages
from gossamer.policy.retry import REFUSED
from gossamer.policy.urls import host
from gossamer.policy.words import explain
from gossamer.scrapy.headers import header_pairs

log = logging.getLogger(__name__)


class RefusalCounter:
    """Counts refusals by kind as `gossamer/refused/KIND`, and logs the first one of each kind."""

    def __init__(self, stats: StatsCollector, finder: RefusalFinder) -> None:
        self._stats = stats
        self._finder = finder
        self._repeated = None if finder.accepts_repeats else RepeatedPages()
        self._logged: set[str] = set()

    def on_response(self, response: Response, request: Request) -> None:
        """Count the response if it is a refusal. `response`: after all downloader middlewares."""
        refusal = self._find(response, request) or self._find_repeat(response, request)
        if refusal is None:
            return
        self._stats.inc_value(f"gossamer/refused/{refusal.kind}")
        if refusal.kind in self._logged:
            return
        self._logged.add(refusal.kind)
        log.warning(
            "%s: %s (%s). More of them are counted as gossamer/refused/%s. Evidence: %s: %s.",
            explain(f"{REFUSED}{refusal.kind}").title, response.url, response.status, refusal.kind, refusal.rule,
            ", ".join(refusal.evidence),
        )  # fmt: skip

    def _find(self, response: Response, request: Request) -> PageRefusal | None:
        """Return the refusal that a response is by itself."""
        status, body = response.status, response.body
        redirects = request.meta.get("redirect_urls")
        if 200 <= status < 300 and not self._finder.may_be_refused(status, body, redirected=bool(redirects)):
            return None
        requested = redirects[0] if redirects else response.url
        return find_refusal(
            status, header_pairs(response.headers), body, url=response.url, requested=requested, finder=self._finder
        )

    def _find_repeat(self, response: Response, request: Request) -> PageRefusal | None:
        """Return the refusal that a page is because many other paths of its site have got the same one."""
        repeated, name, body = self._repeated, host(response.url), response.body
        if (
            repeated is None
            or response.status != 200
            or request.method != "GET"
            or "redirect_urls" in request.meta
            or not repeated.may_repeat("", name, body)
        ):
            return None
        headers = header_pairs(response.headers)
        if not is_html(content_type_of(header_lines(headers, "content-type")), body, headers):
            return None
        repeat = repeated.find("", name, body, url=response.url)
        return None if repeat is None else repeat.refusal
