"""Requests and links of a crawl, as its records show them: for a frontier that has lost them.

The frontier is the store of requests; its seen-set has the fingerprints (hashes) of all requests that a crawl ever had.
A record is what an output keeps of one request. The pages of records are read by the code that workers have, so that
they lead to the same requests; nothing is fetched.
"""

import base64
from collections.abc import Collection
from functools import partial

import msgspec

from gossamer.commit.outlinks import FinishedLease
from gossamer.errors import BadSpider
from gossamer.fetch.exchange import FetchResponse, Timings
from gossamer.frontier.base import RestoredRequest
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import Crawl, Run
from gossamer.model.record import PageRecord
from gossamer.model.request import Batch, DropReason, Lease, Outcome, Payload, Settlement, pack
from gossamer.policy.priorities import child_priority
from gossamer.policy.retry import is_unanswered
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed
from gossamer.settings import Settings
from gossamer.sinks.assets import ManifestLine
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally, WorkerCounts
from gossamer.wiring.plan import Plan
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context, ContextOptions, SharedMemory
from gossamer.worker.extraction import PageContents
from gossamer.worker.loading import SpiderSet, known_spiders
from gossamer.worker.page import PageReader
from gossamer.worker.seen import SeenCache
from gossamer.worker.spider_runner import SpiderRunner

_DROPS = frozenset(DropReason)
"""Reasons of records that were dropped; with others they have failed."""
_NOT_REACHED = frozenset(("bad_redirect", "too_many_redirects", "redirect_loop"))
"""Reasons of failed records whose last redirect was not followed."""
_SPIDER_ERROR = "spider_error"


def page_body(record: PageRecord, body: bytes) -> bytes:
    """Return the bytes of the page of a record. `body`: those that its output has beside the record; empty: none."""
    if body or not record.body:
        return body
    if record.body_encoding == "base64":
        return base64.b64decode(record.body)
    try:
        return record.body.encode(record.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return record.body.encode("utf-8", "replace")


class RecordedCrawl:
    """Reads the records of one crawl."""

    def __init__(
        self, settings: Settings, plan: Plan, frontier: ValkeyFrontier, run: Run, spiders: Collection[str]
    ) -> None:
        """`spiders`: references to those that requests of the crawl may be for. Raises BadSpider."""
        self._plan = plan
        self._frontier = frontier
        self._run = run
        self._spiders = SpiderSet(spiders)
        self._available = frozenset((*known_spiders(), *self._spiders.names))
        # Items are in the outputs already.
        self._terms = msgspec.structs.replace(plan.terms, extract=None, content=None, links=False)
        self._options = ContextOptions(
            user_agent=settings.fetch.full_user_agent, proxy=settings.fetch.proxy, include_links=False, redact=True
        )
        data_epoch = partial(getattr, frontier, "data_epoch")
        self._memory = SharedMemory(SeenCache(settings.worker.seen_cache, data_epoch=data_epoch))
        self._asset_seed = spider_seed(frontier.secret, ASSET_SPIDER)
        self._contexts: dict[str, Context | None] = {}
        """By spider; None: it is not here."""
        tally = Tally()
        counts = WorkerCounts(tally)
        self._runner = SpiderRunner(tally, Troubles(), frontier.spiders)
        self._reader = PageReader(
            counts, self._runner.run, PageContents(lambda: None, tally, max_pages=None), wants_text=True
        )

    @property
    def absent_spiders(self) -> list[str]:
        """Names of the spiders that recorded pages are for, and that are not here."""
        return [name for name, context in self._contexts.items() if context is None]

    # --- requests -----------------------------------------------------------------------------------------------------

    def requests(self, record: PageRecord) -> list[RestoredRequest]:
        """Return the request of a record with its result, and the URLs that it was redirected to.

        A request that was redirected to another domain has gone on there: it was dropped as moved on the first one.
        """
        outcome = Outcome.FETCHED
        if not record.success:
            outcome = Outcome.DROPPED if record.reason in _DROPS else Outcome.FAILED
        render = record.rendering is not None or self._terms.render
        kept = self._is_kept(record, outcome)
        chain = [hop.url for hop in record.redirects] if record.redirects else []
        if not kept and outcome is not Outcome.DROPPED and record.reason not in _NOT_REACHED:
            chain.append(record.response_url)
        chain = [record.url, *chain[1:]]
        found: list[RestoredRequest] = []
        first = 0  # of the URLs on the domain of the last one
        for at, url in enumerate(chain):
            domain = registered_domain(host(url))
            value = self._fingerprint(record.spiderid, url)
            found.append(RestoredRequest(record.spiderid, domain, value, None, render=render))
            if domain != found[first].domain:
                found[first] = found[first]._replace(outcome=Outcome.DROPPED, reason=DropReason.MOVED.value)
                first = at
        found[first] = found[first]._replace(
            outcome=outcome,
            reason=record.reason,
            priority=self._priority(record.depth),
            depth=record.depth,
            kept_url=record.url if kept else "",
        )
        return found

    def asset(self, line: ManifestLine) -> list[RestoredRequest]:
        """Return the request of an asset, a file that a page embeds or links, and the URL that it was redirected to."""
        outcome = Outcome.FETCHED
        if not line.success:
            outcome = Outcome.DROPPED if line.reason in _DROPS else Outcome.FAILED
        found = []
        for url in dict.fromkeys((line.url, line.response_url or line.url)):
            value = fingerprint(url, seed=self._asset_seed)
            found.append(RestoredRequest(ASSET_SPIDER, registered_domain(host(url)), value, None))
        found[0] = found[0]._replace(outcome=outcome, reason=line.reason)
        return found

    def _is_kept(self, record: PageRecord, outcome: Outcome) -> bool:
        """Return whether the crawl keeps the request, because it failed, for another start."""
        crawl: Crawl = self._run.crawl
        if outcome is Outcome.FETCHED or record.spiderid == ASSET_SPIDER:
            return False
        unanswered = record.reason == _SPIDER_ERROR or is_unanswered(outcome, record.reason, record.status_code or None)
        return (crawl.keep_failed and unanswered) or (crawl.keep_all_failed and outcome is Outcome.FAILED)

    def _fingerprint(self, spider: str, url: str) -> int:
        context = self._context(spider)
        if context is not None:
            return context.fingerprint(url)
        return self._frontier.spiders.fingerprint(spider, url, query_order=self._terms.query_order)

    def _priority(self, depth: int) -> int:
        priority = self._plan.priority
        for _ in range(depth):
            priority = child_priority(priority)
        return priority

    # --- links --------------------------------------------------------------------------------------------------------

    async def read(self, record: PageRecord, body: bytes) -> FinishedLease | None:
        """Return the result of the request of a record, with the requests that its page leads to. None: it leads to
        none. `body`: see `page_body`."""
        context = self._context(record.spiderid)
        if context is None:
            return None
        lease = self._lease(record)
        if record.reason == DropReason.DUPLICATE and record.redirects:
            # It was redirected to a URL that another request was to fetch.
            url, domain = record.response_url, registered_domain(host(record.response_url))
            batch = Batch(
                lease.spider, domain, lease.priority, lease.depth, [url], [context.fingerprint(url)],
                render=self._terms.render,
            )  # fmt: skip
            return FinishedLease(Settlement(lease, Outcome.DROPPED), batches=[batch])
        if not record.success:
            return None
        content = page_body(record, body)
        if not content:
            return self._of_links(context, lease, record) if record.links else None
        attempt = Attempt(lease, context)
        attempt.url = record.response_url
        attempt.chain = tuple((hop.url, hop.status) for hop in record.redirects)
        finished = await self._reader.read(attempt, self._response(record, content))
        is_whole = finished.settlement.outcome is Outcome.FETCHED
        return finished if is_whole and (finished.batches or finished.on_links_added) else None

    def _of_links(self, context: Context, lease: Lease, record: PageRecord) -> FinishedLease | None:
        """Return the requests of the links that a record names, because it has no body."""
        if context.custom_parse or not context.follows_links_at(lease.depth):
            return None
        batches: dict[str, Batch] = {}
        for link in record.links:
            if context.scope.reason(link.url) is not None:
                continue
            value = context.fingerprint(link.url)
            if context.is_endless(link.url, value):
                continue
            domain = registered_domain(host(link.url))
            batch = batches.get(domain)
            if batch is None:
                batch = batches[domain] = Batch(
                    lease.spider, domain, child_priority(lease.priority), lease.depth + 1, render=self._terms.render
                )
            batch.urls.append(link.url)
            batch.fingerprints.append(value)
        return FinishedLease(Settlement(lease, Outcome.FETCHED), batches=list(batches.values())) if batches else None

    def _context(self, spider: str) -> Context | None:
        if spider not in self._contexts:
            try:
                loaded = self._spiders.get(self._run.crawl.id, spider)
            except BadSpider:
                self._contexts[spider] = None
            else:
                self._contexts[spider] = Context(
                    self._run, spider, self._terms, spider=loaded, available_spiders=self._available,
                    secret=self._frontier.secret, memory=self._memory, options=self._options,
                )  # fmt: skip
        return self._contexts[spider]

    def _lease(self, record: PageRecord) -> Lease:
        """Return the request of a record as a worker has held it."""
        is_sitemap = self._terms.sitemaps and record.success and _looks_like_sitemap(record)
        return Lease(
            id=0, shard=0, worker="", run=self._run, spider=record.spiderid,
            domain=registered_domain(host(record.url)), priority=self._priority(record.depth), depth=record.depth,
            attempt=record.attempt, deaths=0, url=record.url,
            payload=pack(Payload(sitemap=True)) if is_sitemap else None, terms=self._plan.terms,
            request_id=record.request_id, identity=b"", charged=0.0, render=self._terms.render,
        )  # fmt: skip

    @staticmethod
    def _response(record: PageRecord, body: bytes) -> FetchResponse:
        """Return the response of a record as the client has received it."""
        return FetchResponse(
            record.response_url, record.status_code, record.status_msg, "1.1", list(record.header_pairs), b"", b"",
            body, None, record.truncated, record.ip, 0, False, Timings(), 0,
        )  # fmt: skip


def is_cut_sitemap(record: PageRecord) -> bool:
    """Return whether a record has a part of a sitemap only: the rest is fetched again."""
    return record.truncated and record.success and _looks_like_sitemap(record)


def _looks_like_sitemap(record: PageRecord) -> bool:
    from gossamer.extract.sitemap import looks_like_sitemap  # imported late: few records are sitemaps

    beginning = record.body[:_SITEMAP_CHARACTERS]
    content = base64.b64decode(beginning) if record.body_encoding == "base64" else beginning.encode("utf-8", "replace")
    return looks_like_sitemap(content, only_xml=True)


_SITEMAP_CHARACTERS = 4096
"""Characters of a body by which a sitemap is recognised. A multiple of 4, for base64."""
