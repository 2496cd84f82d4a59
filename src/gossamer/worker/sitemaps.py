"""Sitemaps in a crawl: which bodies are read as one, what they add to the crawl, and in which order they are fetched.

A sitemap may list a thousand times what a page links to, so its URLs have bounds that links do not need:

- A sitemap names others at most once. The protocol lets an index name sitemaps, but no index; and what a sitemap of a
  sitemap lists is not read as a sitemap again.
- Sitemaps wait behind the pages that earlier ones have listed, and a process reads few of one site at a time. So about
  one large sitemap of a site is queued at once.
- With a limit of pages, little more is queued from one sitemap than the crawl may fetch.

Everything that is left out is counted, by its reason.
"""

import asyncio
import re
import sys
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from gossamer.fetch.exchange import FetchResponse, ResponseLimits
from gossamer.model.request import Batch, DropReason, Payload, pack
from gossamer.policy.priorities import sitemap_priority
from gossamer.policy.urls import host, registered_domain
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context
from gossamer.worker.drops import count_drop, drop_reason

if TYPE_CHECKING:  # imported late: many crawls read none
    from gossamer.extract.sitemap import SitemapEntries

# Bodies that are certainly no sitemap, as most pages: they begin as HTML or with something that is no markup.
_MAY_BE_SITEMAP = re.compile(
    rb"(?i)(?:\xef\xbb\xbf)?\s*+(?:<(?!(?:html|!doctype\s+html)[\s>])|https?://)|\x1f\x8b|\xff\xfe|\xfe\xff|<\0|\0<"
)
MAX_SITEMAP_BYTES = 50 * 1024 * 1024 + 1
"""Bytes of a sitemap, as sent, that are fetched: one more than the protocol allows, so that a longer one is noticed."""
_PARSED_AT_ONCE_BYTES = 64 * 1024
"""Sitemaps up to this size, uncompressed, are parsed in a few milliseconds; others in a thread."""
_URLS_A_TURN = 500
"""Entries that are filtered in one turn of the event loop."""

NESTED = "sitemap_nested"
"""Reason in `Tally.unread`: an index of sitemaps that another one names."""
REFUSED = "sitemap_refused"
"""Reason in `Tally.unread`: a filter of the crawl refuses a sitemap that robots.txt names."""

# Entries of one sitemap that are queued where the crawl has a limit of pages: some will fail, or are known already.
_QUEUED_FOR_A_PAGE = 2
_QUEUED_AT_LEAST = 100


def is_sitemap(attempt: Attempt, body: bytes) -> bool:
    """Return whether a body is read as a sitemap: one that was requested as a sitemap, or a submitted URL that is one.

    A spider with its own `parse` gets feeds and lists of URLs as pages.
    """
    payload = attempt.payload
    if payload.sitemap:
        return True
    if attempt.lease.depth > 0 or payload.listed or _MAY_BE_SITEMAP.match(body) is None:
        return False
    from gossamer.extract.sitemap import looks_like_sitemap

    return looks_like_sitemap(body, only_xml=attempt.context.custom_parse)


class SitemapBatches(msgspec.Struct):
    """Entries of a sitemap as batches, and what was left out."""

    pages: list[Batch] = msgspec.field(default_factory=list)
    """One for each domain."""
    sitemaps: list[Batch] = msgspec.field(default_factory=list)
    """Further sitemaps, one batch for each domain."""
    drops: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of entries that were left out, by DropReason."""
    unread: list[str] = msgspec.field(default_factory=list)
    """Reasons why not all entries were read; see `Tally.unread`."""
    dates: dict[str, str] = msgspec.field(default_factory=dict)
    """Times of the last changes of pages and sitemaps that it announces, by URL as it lists them."""
    unlinked: dict[int, str] = msgspec.field(default_factory=dict)
    """URLs of `pages`, by fingerprint, to which no page has linked as far as this process knows."""

    def drop(self, reason: str, count: int = 1) -> None:
        """Count dropped entries."""
        if count:
            count_drop(self.drops, reason, count)


class SitemapReader:
    """Reads the sitemaps of one worker, one large one at a time, so that they do not add up in memory."""

    def __init__(self) -> None:
        self._parsing = asyncio.Lock()

    async def read(self, attempt: Attempt, fetched: FetchResponse) -> SitemapBatches:
        """Return what a sitemap adds to its crawl. Never raises.

        Its pages have the sitemap's own depth, because it lists them rather than links to them, and pass the same
        filters as links.
        """
        found = await self._parse(attempt, fetched)
        fetched.wire_body = None  # it may be large; an output that wants it has it in the attempt
        result = SitemapBatches(unread=[] if found.fault is None else [found.fault], dates=found.dates)
        result.drop(DropReason.BAD_URL, found.bad)
        result.drop(DropReason.SITEMAP_LIMIT, found.beyond)
        if found.urls or not found.sitemaps:
            attempt.listed_pages = len(found.urls)
        payload, lease = attempt.payload, attempt.lease
        # Sitemaps that were requested as such have the priority below that of the pages.
        priority = lease.priority + 1 if payload.sitemap else lease.priority
        await _add_pages(attempt, found.urls, result, priority=priority)
        if found.sitemaps and payload.listed:
            result.unread.append(NESTED)
            result.drop(DropReason.SITEMAP_LIMIT, len(found.sitemaps))
        elif found.sitemaps:
            _add_sitemaps(
                attempt.context, found.sitemaps, result, index=attempt.url, priority=priority, depth=lease.depth
            )
        return result

    async def _parse(self, attempt: Attempt, fetched: FetchResponse) -> "SitemapEntries":
        """Return the entries of a sitemap. One that was requested as a sitemap is decoded from the bytes as sent,
        because `body` is only the part of it that the record has."""
        from gossamer.extract.sitemap import is_gzip, read_sitemap, slices
        from gossamer.fetch.piecewise import decoded_pieces

        wire = fetched.body
        encodings: tuple[str, ...] = ()
        if attempt.payload.sitemap and fetched.wire_body is not None:
            wire, encodings = fetched.wire_body, fetched.encodings
        pieces = decoded_pieces(wire, encodings, ResponseLimits()) if encodings else slices(wire)
        if len(wire) <= _PARSED_AT_ONCE_BYTES and not encodings and not is_gzip(wire):
            return read_sitemap(pieces, attempt.url)
        async with self._parsing:
            return await asyncio.to_thread(read_sitemap, pieces, attempt.url)


async def _add_pages(attempt: Attempt, urls: Sequence[str], result: SitemapBatches, *, priority: int) -> None:
    """Add the pages that a sitemap lists, as far as the filters and the limits of pages let them in."""
    context, lease, payload = attempt.context, attempt.lease, attempt.payload
    terms, scope = context.terms, context.scope
    # Unmarked, pages of a sitemap that robots.txt names may be sitemaps themselves, which it does not name.
    mark = None if payload.sitemap and not payload.listed else pack(Payload(listed=True))
    room, domain_room = _room(lease.run.crawl.max_pages), _room(terms.domain_max_pages)
    batches: dict[str, Batch] = {}
    for at, url in enumerate(urls):
        if at % _URLS_A_TURN == 0:
            await asyncio.sleep(0)
        reason = scope.reason(url)
        if reason is not None:
            result.drop(drop_reason(reason))
            continue
        domain = registered_domain(host(url))
        batch = batches.get(domain)
        if batch is None:
            batch = batches[domain] = Batch(lease.spider, domain, priority, lease.depth, render=terms.render)
        if room <= 0 or len(batch.urls) >= domain_room:
            result.drop(DropReason.BUDGET)
            continue
        url = scope.cleaned(url)
        value = context.fingerprint(url)
        if not context.has_seen(value):
            result.unlinked[value] = url
            room -= 1
        batch.urls.append(url)
        batch.fingerprints.append(value)
    result.pages = [batch for batch in batches.values() if batch.urls]
    if mark is not None:
        for batch in result.pages:
            batch.payloads = [mark] * len(batch.urls)


def _room(pages: int | None) -> int:
    """Return how many entries of one sitemap are queued where the crawl may fetch this many pages."""
    return sys.maxsize if pages is None else _QUEUED_FOR_A_PAGE * pages + _QUEUED_AT_LEAST


def named_sitemaps(context: Context, urls: Sequence[str], *, priority: int, depth: int) -> SitemapBatches:
    """Return batches that request the sitemaps which a robots.txt names, before which pages of this priority are
    fetched.

    They may be on any host: with its robots.txt, a site says that they are its own (the protocol calls that a cross
    submit). Only what the crawl denies is left out.
    """
    result = SitemapBatches()
    _add_sitemaps(context, urls, result, index=None, priority=priority, depth=depth)
    return result


def _add_sitemaps(
    context: Context, urls: Sequence[str], result: SitemapBatches, *, index: str | None, priority: int, depth: int
) -> None:
    """Add further sitemaps. `index`: URL of the index that names them, which may name those of its own host, and others
    within the crawl's scope. None: a robots.txt names them. `priority`: that of pages."""
    mark = pack(Payload(sitemap=True, listed=index is not None))
    room, domain_room = _room(context.run.crawl.max_pages), _room(context.terms.domain_max_pages)
    batches: dict[str, Batch] = {}
    for url in urls:
        reason = context.deny_scope.reason(url)
        if reason is None and index is not None and host(url) != host(index):
            reason = "offsite" if context.scope.reason(url) == "offsite" else None
        if reason is not None:
            result.drop(drop_reason(reason))
            continue
        domain = registered_domain(host(url))
        batch = batches.get(domain)
        if batch is None:
            batch = batches[domain] = Batch(context.spider_name, domain, sitemap_priority(priority), depth)
        if room <= 0 or len(batch.urls) >= domain_room:
            result.drop(DropReason.BUDGET)
            continue
        room -= 1
        batch.urls.append(url)
        batch.fingerprints.append(context.fingerprint(url))
    result.sitemaps = [batch for batch in batches.values() if batch.urls]
    for batch in result.sitemaps:
        batch.payloads = [mark] * len(batch.urls)


# --- turns ------------------------------------------------------------------------------------------------------------

_LISTED_AT_ONCE = 50_000
"""Pages that the sitemaps of one site which a process reads at once may list, if they are like those before."""
_READ_AT_ONCE = 4
"""Most sitemaps of one site that a process reads at once, because they may also be larger than those before."""
_MAX_SITES = 10_000


class _Site(msgspec.Struct, eq=False):
    """Sitemaps of one site in this process."""

    changed: asyncio.Condition
    at_once: int = 1
    """Number that may be read at once, by the largest one so far; 1 until one was read."""
    largest: int = 0
    """Most pages that one of them has listed."""
    in_progress: int = 0


class SitemapTurns:
    """Order in which a worker reads the sitemaps of each site: several small ones, or one large one, at a time.

    All sitemaps of a site may be due before the pages of the first are queued, which then go first.
    """

    def __init__(self) -> None:
        self._sites: OrderedDict[tuple[str, str], _Site] = OrderedDict()

    @asynccontextmanager
    async def take(self, crawl: str, domain: str) -> AsyncIterator[Callable[[int], None]]:
        """Wait for the turn of a sitemap, and keep it in this context. The value is to be called with the number of
        pages that it lists."""
        site = self._sites.get((crawl, domain))
        if site is None:
            site = self._sites[crawl, domain] = _Site(asyncio.Condition())
        self._sites.move_to_end((crawl, domain))
        if len(self._sites) > _MAX_SITES:
            self._sites.popitem(last=False)  # those that wait for it have it
        async with site.changed:
            await site.changed.wait_for(lambda: site.in_progress < site.at_once)
            site.in_progress += 1

        def record(pages: int) -> None:
            site.largest = max(site.largest, pages)
            site.at_once = max(1, min(_READ_AT_ONCE, _LISTED_AT_ONCE // max(1, site.largest)))

        try:
            yield record
        finally:
            async with site.changed:
                site.in_progress -= 1
                site.changed.notify_all()
