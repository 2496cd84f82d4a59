"""From an answer to its record, its links and its items."""

import contextlib
import logging
import time
from collections.abc import Callable

from gossamer.commit.finished import Confirmed, Finished
from gossamer.errors import BadInput, BadUrl, FrontierUnavailable
from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import Links
from gossamer.fetch.exchange import Fetched
from gossamer.fetch.request import check_headers
from gossamer.frontier.base import Spiders
from gossamer.model.outcome import Dropped, Outcome
from gossamer.model.payload import Payload, pack, too_large
from gossamer.model.record import Output
from gossamer.model.request import Batch, Lease, Settlement
from gossamer.policy.names import name_fault
from gossamer.policy.urls import host, join, registered_domain
from gossamer.telemetry import names
from gossamer.telemetry.tally import Tally
from gossamer.telemetry.troubles import Troubles
from gossamer.worker.context import Context
from gossamer.worker.journey import Journey
from gossamer.worker.records import item_record, page_record
from gossamer.worker.sitemaps import counted_as, is_sitemap, listed
from gossamer.worker.spider import Follow, Page
from gossamer.worker.weight import weight, weight_of_batches, weight_of_urls

log = logging.getLogger("gossamer.worker")

PRIORITY_STEP = 10
"""A child's priority is its parent's minus this: breadth first."""
LOWEST_PRIORITY = -65_000
_UNKNOWN_TOLD = 20
"""Names of spiders that are not installed; a spider might make them up."""


class PageReader:
    """Reads answers that are pages. Never raises for what is in one."""

    def __init__(
        self, tally: Tally, troubles: Troubles, spiders: Spiders, *, now: Callable[[], float] = time.time
    ) -> None:
        """`spiders`: of the frontier."""
        self._tally = tally
        self._spiders = spiders
        self._troubles = troubles
        self._now = now
        self._unknown: set[str] = set()

    @staticmethod
    def decode(fetched: Fetched) -> tuple[str | None, str, str]:
        """(text, or None where the body is no text; encoding; content type)."""
        content_type = ""
        for name, value in fetched.headers:
            if name.lower() == "content-type":
                content_type = value
                break
        if not fetched.body:
            return "", "", content_type
        text, encoding, strict = decode(fetched.body, content_type)
        return (text if strict else None), encoding, content_type

    async def read(self, journey: Journey, fetched: Fetched) -> Finished:
        """The end of a request whose answer is a page."""
        context, lease = journey.context, journey.lease
        text, encoding, content_type = self.decode(fetched)
        if is_sitemap(journey, fetched.body):
            return await self._sitemap(journey, fetched, text, encoding, content_type)
        follows = context.follows_from(lease.depth)
        own_parse = not context.spider.follows_all_links
        links: Links | None = None
        if (follows or own_parse or context.links) and is_html(content_type, fetched.body):
            # The bytes, not the text: the parser wants UTF-8, which most pages are as they come.
            links = context.links_of(fetched.body, journey.url, encoding=encoding)
        record = page_record(
            journey,
            fetched,
            now=self._now(),
            success=True,
            text=text,
            encoding=encoding,
            content_type=content_type,
            links=links.texts or () if links else (),
        )
        output = Output(record=record, body=fetched.body, wires=tuple(journey.wires))
        finished = Finished(Settlement(lease, Outcome.FETCHED), [output], size=weight(output))
        if own_parse:
            page = Page(record, fetched.body, text or "", links, priority=lease.priority)
            if not await self._parse(journey, finished, page, follows):
                return finished
        elif links is not None and follows:
            _follow_all(context, lease, links, finished)
            finished.size += weight_of_urls(links.urls)
        self._tally.pages += 1
        self._tally.status(lease.spider, fetched.status)
        return finished

    # --- spiders of one's own -----------------------------------------------------------------------------------------

    async def _parse(self, journey: Journey, finished: Finished, page: Page, follows: bool) -> bool:
        """Let the spider read the page; False when it failed, and the page with it."""
        items: list[Output] = []
        batches: list[Batch] = []
        drops: dict[str, int] = {}
        try:
            async for found in journey.context.spider.parse(page):
                if isinstance(found, Follow):
                    if not follows:
                        _count(drops, Dropped.DEPTH)
                        continue
                    batch = await self._batch_of(journey, found, drops)
                    if batch is not None:
                        batches.append(batch)
                else:
                    items.append(Output(record=item_record(page.record, dict(found))))
        except Exception as error:
            log.exception("%s %s", names.SPIDER_BROKE, journey.url)
            self._tally.fail("spider_error")
            page.record.success, page.record.reason = False, "spider_error"
            page.record.exception = f"{type(error).__name__}: {error}"
            finished.settlement.outcome, finished.settlement.reason = Outcome.FAILED, "spider_error"
            return False
        self._tally.items += len(items)
        finished.outputs = [*finished.outputs, *items]
        finished.batches = batches
        finished.size += weight_of_batches(batches)
        finished.settlement.drops = drops or None
        return True

    async def _batch_of(self, journey: Journey, follow: Follow, drops: dict[str, int]) -> Batch | None:
        spiders = journey.context.spiders
        if follow.spider and spiders is not None and follow.spider not in spiders:
            # It would wait in the frontier for somebody who never comes, and its crawl would never end.
            _count(drops, Dropped.UNKNOWN_SPIDER)
            self._tell_unknown(journey.lease.spider, follow.spider)
            return None
        if follow.spider and follow.spider != journey.lease.spider:
            with contextlib.suppress(FrontierUnavailable):  # what was learned before will do
                await self._spiders.learn([follow.spider])
        return _batch_of(journey, follow, drops, self._spiders)

    def _tell_unknown(self, sender: str, spider: str) -> None:
        if len(self._unknown) < _UNKNOWN_TOLD:
            self._unknown.add(spider)
        if spider in self._unknown:
            self._troubles.begin(
                f"spider {spider:.100}",
                f"The spider {sender} sends links to a spider {spider:.100}, which is not installed. "
                "They are dropped, and counted as unknown_spider.",
            )

    # --- sitemaps -----------------------------------------------------------------------------------------------------

    async def _sitemap(
        self, journey: Journey, fetched: Fetched, text: str | None, encoding: str, content_type: str
    ) -> Finished:
        found = await listed(journey, fetched.body)
        record = page_record(
            journey,
            fetched,
            now=self._now(),
            success=True,
            text=text,
            encoding=encoding,
            content_type=content_type,
        )
        output = Output(record=record, body=fetched.body, wires=tuple(journey.wires))
        self._tally.pages += 1
        self._tally.status(journey.lease.spider, fetched.status)
        return Finished(
            Settlement(journey.lease, Outcome.FETCHED, drops=found.drops or None),
            [output],
            found.batches,
            size=weight(output) + weight_of_batches(found.batches),
        )


def child_priority(priority: int) -> int:
    """Of a link on a page of this priority."""
    return max(priority - PRIORITY_STEP, LOWEST_PRIORITY)


def _follow_all(context: Context, lease: Lease, links: Links, finished: Finished) -> None:
    """Every link of the page that may be new, grouped by domain. The hot path: no object per link."""
    drops: dict[str, int] = {}
    for reason, count in links.dropped.items():
        _count(drops, counted_as(reason), count)
    if links.urls:
        unknown = context.unknown(links)
        known = len(links.urls) - len(unknown)
        if known:
            _count(drops, Dropped.DUPLICATE, known)
        if unknown:
            finished.batches = _grouped(lease, links, unknown if known else None)
        finished.confirmed = _confirmation(context, links)
    if drops:
        finished.settlement.drops = drops


def _confirmation(context: Context, links: Links) -> Confirmed:
    since = context.era
    return lambda rejected: context.confirm(links, rejected, since=since)


def _grouped(lease: Lease, links: Links, positions: list[int] | None) -> list[Batch]:
    """Batches by domain of the links at these positions; None: all of them."""
    urls, marks, domains = links.urls, links.fingerprints, links.domains
    if positions is not None:
        urls = [urls[at] for at in positions]
        marks = [marks[at] for at in positions]
        domains = [domains[at] for at in positions]
    priority, depth = child_priority(lease.priority), lease.depth + 1
    if domains.count(domains[0]) == len(domains):
        return [Batch(lease.spider, domains[0], priority, depth, urls, marks)]
    batches: dict[str, Batch] = {}
    for url, mark, domain in zip(urls, marks, domains, strict=True):
        batch = batches.get(domain)
        if batch is None:
            batch = batches[domain] = Batch(lease.spider, domain, priority, depth)
        batch.urls.append(url)
        batch.fingerprints.append(mark)
    return list(batches.values())


def _batch_of(journey: Journey, follow: Follow, drops: dict[str, int], spiders: Spiders) -> Batch | None:
    """A spider's link as a batch of one; None: it goes nowhere, which is counted.

    Raises BadInput: it is too large, or has an impossible header or a spider of an impossible name."""
    context, lease = journey.context, journey.lease
    try:
        url = join(journey.url, follow.url)
    except BadUrl as fault:
        _count(drops, counted_as(fault.reason))
        return None
    reason = context.scope.reason(url)
    if reason is not None:
        _count(drops, counted_as(reason))
        return None
    spider = follow.spider or lease.spider
    if why := name_fault(spider):
        raise BadInput(f"the link to {url[:200]}: {why}")
    payload = Payload(
        method=follow.method.upper(),
        body=follow.body,
        headers=dict(follow.headers) if follow.headers else None,
        attrs=dict(follow.attrs) if follow.attrs is not None else journey.payload.attrs,
    )
    try:
        check_headers(tuple((payload.headers or {}).items()))
    except BadInput as fault:
        raise BadInput(f"the link to {url[:200]}: {fault.detail}") from None
    packed = pack(payload)
    if why := too_large(packed):
        raise BadInput(f"the link to {url[:200]} is too large: {why}")
    if spider == lease.spider:
        mark = context.fingerprint(url, method=payload.method, body=follow.body)
    else:
        mark = spiders.fingerprint(
            spider, url, method=payload.method, body=follow.body, query_order=lease.terms.query_order
        )
    priority = child_priority(lease.priority) if follow.priority is None else follow.priority
    domain = registered_domain(host(url))
    return Batch(spider, domain, priority, lease.depth + 1, [url], [mark], [packed], unfiltered=follow.again)


def _count(drops: dict[str, int], reason: str, count: int = 1) -> None:
    drops[str(reason)] = drops.get(str(reason), 0) + count
