"""Counts the responses of a crawl that are refusals by sites, in the stats; the spider gets them unchanged."""

import logging

from scrapy import Request
from scrapy.http import Response
from scrapy.statscollectors import StatsCollector

from gossamer.policy.refusals import RefusalFinder
from gossamer.policy.retry import REFUSED
from gossamer.policy.words import explain

log = logging.getLogger(__name__)


class RefusalCounter:
    """Counts refusals by kind as `gossamer/refused/KIND`, and logs the first one of each kind."""

    def __init__(self, stats: StatsCollector, finder: RefusalFinder) -> None:
        self._stats = stats
        self._finder = finder
        self._logged: set[str] = set()

    def on_response(self, response: Response, request: Request) -> None:
        """Count the response if it is a refusal. `response`: after all downloader middlewares."""
        status, body = response.status, response.body
        redirects = request.meta.get("redirect_urls")
        if 200 <= status < 300 and not self._finder.may_be_refused(status, body, redirected=bool(redirects)):
            return
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, values in response.headers.items()
            for value in values
        ]
        requested = redirects[0] if redirects else response.url
        refusal = self._finder.find(status, headers, body, url=response.url, requested=requested)
        if refusal is None:
            return
        self._stats.inc_value(f"gossamer/refused/{refusal.kind}")
        if refusal.kind in self._logged:
            return
        self._logged.add(refusal.kind)
        log.warning(
            "%s: %s (%s). More of them are counted as gossamer/refused/%s. Evidence: %s: %s.",
            explain(f"{REFUSED}{refusal.kind}").title, response.url, status, refusal.kind, refusal.rule,
            ", ".join(refusal.evidence),
        )  # fmt: skip
