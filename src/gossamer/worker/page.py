"""Reads a response that is a page: its record, its links and its items. Sitemaps are read here, too.

A page belongs to a lease: a request that the frontier (the cluster's store of requests) has handed to this worker.
Links become batches: requests of one domain that the worker adds to the frontier. Terms are the options of the
submission to which the request belongs. Safe to change: what counts as a sitemap, and the limits below as they say.
Fixed: the payload of a request (`Payload`: method, body and what else the client packs), the reasons for dropped links
and the reason `spider_error`, which the frontier or records keep.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from sys import getsizeof

from gossamer.commit.outlinks import LINK_BYTES, FinishedLease, LinksAddedCallback
from gossamer.errors import BadInput, BadUrl, FrontierUnavailable
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import decode, is_html
from gossamer.extract.links import Links
from gossamer.extract.sitemap import parse_sitemap
from gossamer.fetch.exchange import FetchResponse
from gossamer.fetch.request import check_headers
from gossamer.frontier.base import SpiderRegistry
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import (
    Batch,
    DropReason,
    Lease,
    Outcome,
    Payload,
    Settlement,
    pack,
    payload_size_error,
    spider_name_error,
)
from gossamer.policy.urls import host, join, registered_domain
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import WorkerCounts
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context
from gossamer.worker.extraction import ITEM_BYTES, PageContents, add_assets, add_items, read_asset
from gossamer.worker.parsing import BlockWatch, Found, home_of, places_of_error, record_text, run_parse, terminal_text
from gossamer.worker.records import EXCEPTION_CHARACTERS, PageText, item_record, page_record
from gossamer.worker.spider import Follow, Page, Spider

log = logging.getLogger("gossamer.worker")

_SITEMAP_ROOT = re.compile(rb"<(?:\w+:)?(?:urlset|sitemapindex)[\s>]")
"""Root element of a sitemap, or of an index of sitemaps. Fixed by sitemaps.org."""
_SNIFFED_BYTES = 1024
"""Beginning of a body in which a sitemap's root element is looked for. May be changed: a sitemap with a longer comment
before it counts as a page; a larger value takes longer for every submitted URL."""
_PARSED_AT_ONCE_BYTES = 64 * 1024
"""Sitemaps up to this size are parsed in a few milliseconds; longer ones in a thread. May be changed: a larger value
delays the worker's other requests and its heartbeats."""


@dataclass(slots=True)
class SitemapBatches:
    """Entries of a sitemap as batches, and the number of dropped entries by reason."""

    batches: list[Batch] = field(default_factory=list)
    """One for each domain of its pages, and one for each further sitemap."""
    drops: dict[str, int] = field(default_factory=dict)

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped entries."""
        self.drops[str(reason)] = self.drops.get(str(reason), 0) + count


def is_sitemap(attempt: Attempt, body: bytes) -> bool:
    """Return whether a body is read as a sitemap: one that was requested as a sitemap, or a submitted URL that is
    one."""
    return attempt.payload.sitemap or (
        attempt.lease.depth == 0 and _SITEMAP_ROOT.search(body, 0, _SNIFFED_BYTES) is not None
    )


async def read_sitemap(attempt: Attempt, body: bytes) -> SitemapBatches:
    """Return what a sitemap adds to its crawl. Never raises.

    Its pages have the sitemap's own depth, because it lists them rather than links to them, and pass the same filters
    as links. Further sitemaps become requests like itself; they may be compressed, so the filter of extensions does not
    apply.
    """
    if len(body) <= _PARSED_AT_ONCE_BYTES:
        found = parse_sitemap(body, attempt.url)
    else:
        found = await asyncio.to_thread(parse_sitemap, body, attempt.url)
    result = SitemapBatches()
    if found.bad:
        result.drop(DropReason.BAD_URL, found.bad)
    context, lease = attempt.context, attempt.lease
    pages: dict[str, Batch] = {}
    scope = context.scope
    for url in found.urls:
        reason = scope.reason(url)
        if reason is not None:
            result.drop(drop_reason(reason))
            continue
        domain = registered_domain(host(url))
        batch = pages.get(domain)
        if batch is None:
            batch = pages[domain] = Batch(lease.spider, domain, lease.priority, lease.depth)
        batch.urls.append(url)
        batch.fingerprints.append(context.fingerprint(url))
    result.batches = [
        *pages.values(),
        *sitemap_batches(context, found.sitemaps, priority=lease.priority, depth=lease.depth),
    ]
    return result


def sitemap_batches(context: Context, urls: Sequence[str], *, priority: int, depth: int) -> list[Batch]:
    """Return batches that request these sitemaps, each under its domain, without those out of scope.

    Refused extensions count as in scope: a sitemap may be compressed.
    """
    packed, scope = pack(Payload(sitemap=True)), context.scope
    return [
        Batch(
            context.spider_name,
            registered_domain(host(url)),
            priority,
            depth,
            [url],
            [context.fingerprint(url)],
            [packed],
        )
        for url in urls
        if scope.reason(url) in (None, "extension")
    ]


_DROP_REASONS = {
    "known": DropReason.DUPLICATE,
    "allow_regex": DropReason.FILTERED,
    "deny_regex": DropReason.FILTERED,
    "too_long": DropReason.BAD_URL,
}
"""Reasons of the extractor and the scope that have another name in the frontier's counts."""


def drop_reason(reason: str) -> str:
    """Return the reason under which the frontier counts a refusal by the extractor or the scope."""
    return str(_DROP_REASONS.get(reason, reason))


PAGE_OVERHEAD_BYTES = 4096
"""Memory of a page besides its body: the record, the lease, a few links. An estimate; a larger one lets fewer pages
wait for a slow output at once."""
_MANY_LINKS = 256
"""Number of links from which they count beyond the page's overhead. May be changed: a larger number saves time for each
page, and leaves that many links of every waiting page uncounted."""


def output_size(output: Output) -> int:
    """Return the approximate memory of an output in bytes: its body, the body's text or base64, links with their texts,
    and the bytes as they were sent."""
    size = PAGE_OVERHEAD_BYTES + len(output.body)
    record = output.record
    if isinstance(record, PageRecord):
        size += getsizeof(record.body)
        if len(record.links) > _MANY_LINKS:
            size += sum(LINK_BYTES + len(link.url) + len(link.text) for link in record.links)
    for wire in output.wires:
        if wire.response_body is not output.body:
            size += len(wire.response_body)
    return size


def urls_size(urls: Collection[str]) -> int:
    """Return the memory of URLs on their way to the frontier, in bytes; 0 for a few, which a page's overhead
    includes."""
    return sum(map(len, urls)) + LINK_BYTES * len(urls) if len(urls) > _MANY_LINKS else 0


def batches_size(batches: Collection[Batch]) -> int:
    """Return the memory of the URLs in batches, in bytes."""
    return urls_size([url for batch in batches for url in batch.urls])


PRIORITY_STEP = 10
"""A link's priority is its page's minus this, so that a crawl is breadth first. Fixed: Scrapy Cluster's value,
documented for spiders (`Follow.priority`)."""
LOWEST_PRIORITY = -65_000
"""Lowest priority that a link gets. Fixed: must equal LOWEST_PRIORITY in the frontier's settle.lua."""
_MAX_UNKNOWN_SPIDERS = 20
"""Number of names of missing spiders that are reported. May be changed; a limit is needed, because a spider may make up
any number of names."""
_MAX_BROKEN_PLACES = 100
"""Number of different lines of spiders whose errors are reported. May be changed; a limit is needed, because the lines
of a changing program have no end."""
_SHOWN_CHARACTERS = 200
"""Characters of a link that an error shows. May be changed: more make messages and records longer."""


class PageReader:
    """Reads responses that are pages. Never raises for the content of one."""

    def __init__(
        self, counts: WorkerCounts, troubles: Troubles, spiders: SpiderRegistry, contents: PageContents
    ) -> None:
        """`counts`: counts with the worker's tally. `troubles`: the lasting conditions that it reports. `spiders`: the
        frontier's registry of the spiders that workers have. `contents` extracts the main content of pages; the fetcher
        calls it."""
        self.contents = contents
        self._counts = counts
        self._tally = counts.tally
        self._spiders = spiders
        self._troubles = troubles
        self._unknown: set[str] = set()
        """Names of the missing spiders that were reported."""
        self._broken: set[tuple[object, ...]] = set()
        """Places in the code of spiders whose errors were reported."""
        self._watch = BlockWatch(lambda message: troubles.report(names.SPIDER_BLOCKED, message))

    @staticmethod
    def decode(fetched: FetchResponse) -> PageText:
        """Return the body as text."""
        content_type = ""
        for name, value in fetched.headers:
            if name.lower() == "content-type":
                content_type = value
                break
        if not fetched.body:
            return PageText("", "", content_type)
        text, encoding, strict = decode(fetched.body, content_type)
        return PageText(text if strict else None, encoding, content_type)

    async def read(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease:
        """Return the result of a request whose response is a page."""
        if attempt.payload.asset is not None:
            finished = read_asset(attempt, fetched, self._tally)
            finished.size = output_size(finished.outputs[0]) + batches_size(finished.batches)
            return finished
        context, lease = attempt.context, attempt.lease
        decoded = self.decode(fetched)
        if is_sitemap(attempt, fetched.body):
            return await self._read_sitemap(attempt, fetched, decoded)
        follows = context.follows_links_at(lease.depth)
        custom_parse = not context.spider.follows_all_links  # the spider has a method `parse`
        links: Links | None = None
        document: HtmlDocument | None = None
        # A spider with its own `parse` asks for links when it wants them.
        wants_links = context.include_links or (follows and not custom_parse)
        if (wants_links or custom_parse or context.extracts or context.asset_kinds) and is_html(
            decoded.content_type, fetched.body
        ):
            # The bytes, not the text: the parser takes UTF-8, which most pages are in already.
            document = HtmlDocument(fetched.body, decoded.encoding)
            if wants_links:
                links = context.extract_links(document, attempt.url, encoding=decoded.encoding)
        if context.terms.content is not None and is_html(decoded.content_type, fetched.body):
            attempt.content_encoding = decoded.encoding  # the fetcher extracts the content later, with this
        record = page_record(
            attempt,
            fetched,
            decoded,
            now=time.time(),
            links=links.texts or () if links else (),
        )
        output = Output(record=record, body=fetched.body, wires=tuple(attempt.wires))
        finished = FinishedLease(Settlement(lease, Outcome.FETCHED), [output], size=output_size(output))
        if custom_parse:
            page = Page(
                record,
                fetched.body,
                decoded.text,
                document=document,
                priority=lease.priority,
                in_scope=lambda page: context.extract_links(page, attempt.url, encoding=decoded.encoding).urls,
            )
            if not await self._parse(attempt, finished, page, follows):
                return finished
        elif links is not None and follows:
            _add_all_links(context, lease, links, finished, self._counts)
            finished.size += urls_size(links.urls)
        if context.asset_kinds and document is not None:
            size = batches_size(finished.batches)
            add_assets(attempt, document, decoded.encoding, finished)
            finished.size += batches_size(finished.batches) - size
        if context.extracts:
            add_items(context, document, finished, self._tally)
        self._tally.pages += 1
        self._tally.status(lease.spider, fetched.status)
        return finished

    # --- custom spiders -----------------------------------------------------------------------------------------------

    async def _parse(self, attempt: Attempt, finished: FinishedLease, page: Page, follows: bool) -> bool:
        """Pass the page to the spider. Returns False if the spider failed, which fails the page."""
        items: list[Output] = []
        batches: list[Batch] = []
        drops: dict[str, int] = {}

        async def take(found: Found) -> None:
            if isinstance(found, dict):
                items.append(Output(record=item_record(page.record, found)))
            elif not follows:
                _count(drops, DropReason.DEPTH)
            elif (batch := await self._follow(attempt, found, drops)) is not None:
                batches.append(batch)

        spider = attempt.context.spider
        try:
            await run_parse(spider, page, take, self._watch)
        except (Exception, SystemExit) as error:  # also sys.exit() in a spider: it must not end the worker
            self._report_broken(attempt, spider, error)
            self._tally.fail("spider_error", attempt.lease.url)
            # The record is in `finished.outputs` already.
            page.record.success, page.record.reason = False, "spider_error"
            page.record.exception = record_text(error, home_of(spider))[:EXCEPTION_CHARACTERS]
            finished.settlement.outcome, finished.settlement.reason = Outcome.FAILED, "spider_error"
            finished.settlement.unanswered = True  # a corrected spider may read the page
            return False
        self._tally.items += len(items)
        finished.outputs = [*finished.outputs, *items]
        finished.batches = batches
        finished.size += batches_size(batches) + ITEM_BYTES * len(items)
        finished.settlement.drops = drops or None
        return True

    def _report_broken(self, attempt: Attempt, spider: Spider, error: BaseException) -> None:
        """Tell about an error of a spider's code: once for each line of it, because all pages may meet the same."""
        home = home_of(spider)
        text = terminal_text(error, home)
        place = (attempt.lease.spider, type(error).__name__, *places_of_error(error, home)[-1:])
        if place in self._broken or len(self._broken) >= _MAX_BROKEN_PLACES:
            log.info("%s %s\n%s", names.SPIDER_BROKE, attempt.url, text)
            return
        self._broken.add(place)
        self._troubles.report(
            names.SPIDER_BROKE,
            f"The spider {attempt.lease.spider} failed on {attempt.url}. Its record has the reason spider_error; "
            f"further errors at this line are only recorded.\n{text}",
        )

    async def _follow(self, attempt: Attempt, follow: Follow, drops: dict[str, int]) -> Batch | None:
        """Return a spider's link as a batch of one; None: it is dropped, which is counted in `drops`."""
        available = attempt.context.available_spiders
        if follow.spider and available is not None and follow.spider not in available:
            # Its requests would wait for a spider that no worker runs, and the crawl would never end.
            _count(drops, DropReason.UNKNOWN_SPIDER)
            self._report_unknown(attempt.lease.spider, follow.spider)
            return None
        if follow.spider and follow.spider != attempt.lease.spider:
            with contextlib.suppress(FrontierUnavailable):  # then the registry as it was last known is used
                await self._spiders.refresh([follow.spider])
        return _batch_of(attempt, follow, drops, self._spiders)

    def _report_unknown(self, sender: str, spider: str) -> None:
        """Report a missing spider. `begin` says each condition once, however often it is called."""
        if len(self._unknown) < _MAX_UNKNOWN_SPIDERS:
            self._unknown.add(spider)
        if spider in self._unknown:
            self._troubles.begin(
                f"spider {spider:.100}",
                f"The spider {sender} sends links to a spider {spider:.100}, which is not installed. "
                "They are dropped, and counted as unknown_spider.",
            )

    # --- sitemaps -----------------------------------------------------------------------------------------------------

    async def _read_sitemap(self, attempt: Attempt, fetched: FetchResponse, decoded: PageText) -> FinishedLease:
        """Return the result of a request whose response is a sitemap."""
        found = await read_sitemap(attempt, fetched.body)
        context = attempt.context
        # The summary names pages that only the sitemap lists. Other spiders and a limited depth do not show all links.
        if context.spider.follows_all_links and context.terms.maxdepth is None:
            pages = [batch for batch in found.batches if batch.payloads is None]  # others are further sitemaps
            self._counts.list_pages(context.unlinked(pages))
        record = page_record(attempt, fetched, decoded, now=time.time())
        output = Output(record=record, body=fetched.body, wires=tuple(attempt.wires))
        self._tally.pages += 1
        self._tally.status(attempt.lease.spider, fetched.status)
        return FinishedLease(
            Settlement(attempt.lease, Outcome.FETCHED, drops=found.drops or None),
            [output],
            found.batches,
            size=output_size(output) + batches_size(found.batches),
        )


def child_priority(priority: int) -> int:
    """Return the priority of a link on a page of this priority."""
    return max(priority - PRIORITY_STEP, LOWEST_PRIORITY)


def _add_all_links(context: Context, lease: Lease, links: Links, finished: FinishedLease, counts: WorkerCounts) -> None:
    """Add every link of the page that may be new, grouped by domain. This runs for every page of most crawls, so it
    must make no object for each link."""
    drops: dict[str, int] = {}
    for reason, count in links.dropped.items():
        _count(drops, drop_reason(reason), count)
    if links.urls:
        unknown = context.unseen_positions(links)
        known = len(links.urls) - len(unknown)
        if known:
            _count(drops, DropReason.DUPLICATE, known)
        if unknown:
            finished.batches = _grouped(lease, links, unknown if known else None)
        # Also where nothing is sent: the hrefs of the known links are remembered then.
        finished.on_links_added = _confirm_callback(context, links, counts)
    if drops:
        finished.settlement.drops = drops


def _confirm_callback(context: Context, links: Links, counts: WorkerCounts) -> LinksAddedCallback:
    """Return a callback that remembers the links once the frontier has them. The data epoch (a number that changes when
    the frontier may have lost what it confirmed) must be read now, before they are sent."""
    since = context.data_epoch

    def confirm(rejected: Collection[int]) -> None:
        context.confirm(links, rejected, since=since)
        if counts.listed:
            counts.link(links.fingerprints)

    return confirm


def _grouped(lease: Lease, links: Links, positions: list[int] | None) -> list[Batch]:
    """Return batches by domain of the links at these positions; None: all links."""
    urls, fingerprints, domains = links.urls, links.fingerprints, links.domains
    if positions is not None:
        urls = [urls[at] for at in positions]
        fingerprints = [fingerprints[at] for at in positions]
        domains = [domains[at] for at in positions]
    priority, depth = child_priority(lease.priority), lease.depth + 1
    if domains.count(domains[0]) == len(domains):
        return [Batch(lease.spider, domains[0], priority, depth, urls, fingerprints)]
    batches: dict[str, Batch] = {}
    for url, fingerprint, domain in zip(urls, fingerprints, domains, strict=True):
        batch = batches.get(domain)
        if batch is None:
            batch = batches[domain] = Batch(lease.spider, domain, priority, depth)
        batch.urls.append(url)
        batch.fingerprints.append(fingerprint)
    return list(batches.values())


def _batch_of(attempt: Attempt, follow: Follow, drops: dict[str, int], spiders: SpiderRegistry) -> Batch | None:
    """Return a spider's link as a batch of one; None: the scope refuses it, which is counted in `drops`.

    Raises BadInput for a link that is too large, or that has an invalid header or spider name.
    """
    context, lease = attempt.context, attempt.lease
    try:
        url = join(attempt.url, follow.url)
    except BadUrl as fault:
        _count(drops, drop_reason(fault.reason))
        return None
    reason = context.scope.reason(url)
    if reason is not None:
        _count(drops, drop_reason(reason))
        return None
    spider = follow.spider or lease.spider
    if why := spider_name_error(spider):
        raise BadInput(f"the link to {url[:_SHOWN_CHARACTERS]}: {why}")
    payload = Payload(
        method=follow.method.upper(),
        body=follow.body,
        headers=dict(follow.headers) if follow.headers else None,
        attrs=dict(follow.attrs) if follow.attrs is not None else attempt.payload.attrs,
    )
    try:
        check_headers(tuple((payload.headers or {}).items()))
    except BadInput as fault:
        raise BadInput(f"the link to {url[:_SHOWN_CHARACTERS]}: {fault.detail}") from None
    try:
        packed = pack(payload)
    except (TypeError, ValueError, RecursionError) as fault:
        raise BadInput(f"the link to {url[:_SHOWN_CHARACTERS]}: attrs must be JSON: {fault}") from None
    if why := payload_size_error(packed):
        raise BadInput(f"the link to {url[:_SHOWN_CHARACTERS]} is too large: {why}")
    if spider == lease.spider:
        fingerprint = context.fingerprint(url, method=payload.method, body=follow.body)
    else:
        fingerprint = spiders.fingerprint(
            spider, url, method=payload.method, body=follow.body, query_order=lease.terms.query_order
        )
    priority = child_priority(lease.priority) if follow.priority is None else follow.priority
    domain = registered_domain(host(url))
    return Batch(spider, domain, priority, lease.depth + 1, [url], [fingerprint], [packed], unfiltered=follow.again)


def _count(drops: dict[str, int], reason: str, count: int = 1) -> None:
    """Count links that are dropped for this reason."""
    drops[str(reason)] = drops.get(str(reason), 0) + count
