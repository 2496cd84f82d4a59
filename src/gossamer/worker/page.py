"""Reads a response that is a page: its record, its links and its items. Sitemaps are read here, too.

A page belongs to a lease: a request that the frontier (the cluster's store of requests) has handed to this worker.
Links become batches: requests of one domain that the worker adds to the frontier. Terms are the options of the
submission to which the request belongs. Fixed: the reasons for dropped links and the reason `spider_error`, which the
frontier or records keep.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from sys import getsizeof

from gossamer.commit.outlinks import LINK_BYTES, FinishedLease
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import content_type_of, decode, is_html, is_utf8_as_it_is, looks_like_html
from gossamer.extract.links import Links
from gossamer.fetch.exchange import FetchResponse, header_lines
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import (
    Batch,
    DropReason,
    Lease,
    Outcome,
    Settlement,
)
from gossamer.policy.priorities import child_priority
from gossamer.telemetry.tally import WorkerCounts
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context
from gossamer.worker.drops import count_drop, drop_reason
from gossamer.worker.extraction import PageContents, add_assets, add_items, add_screenshot, read_asset
from gossamer.worker.records import PageText, page_record
from gossamer.worker.sitemaps import SitemapReader, is_sitemap

log = logging.getLogger("gossamer.worker")

NOT_MODIFIED = 304
"""Status of an answer to a conditional request: the page is as it was."""
PAGE_OVERHEAD_BYTES = 4096
"""Memory of a page besides its body: the record, the lease, a few links. An estimate; a larger one lets fewer pages
wait for a slow output at once."""
_MANY_LINKS = 256
"""Number of links from which they count beyond the page's overhead. A larger number saves time for each page, and
leaves that many links of every waiting page uncounted."""


def output_size(output: Output) -> int:
    """Return the approximate memory of an output in bytes: its body, the body's text or base64, links with their texts,
    and the bytes as they were sent."""
    size = PAGE_OVERHEAD_BYTES + len(output.body)
    record = output.record
    if isinstance(record, PageRecord):
        if record.body:
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


RunSpider = Callable[[Attempt, FinishedLease, HtmlDocument | None, PageText], Awaitable[bool]]


class PageReader:
    """Reads responses that are pages. Never raises for the content of one."""

    def __init__(
        self, counts: WorkerCounts, run_spider: RunSpider, contents: PageContents, *, wants_text: bool
    ) -> None:
        """`counts`: counts with the worker's tally. `run_spider`: as `SpiderRunner.run`, for spiders that have a method
        `parse` of their own. `contents` extracts the main content of pages; the fetcher calls it. `wants_text`: an
        output wants the bodies of pages as text."""
        self._wants_text = wants_text
        self.contents = contents
        self._counts = counts
        self._tally = counts.tally
        self._run_spider = run_spider
        self._sitemaps = SitemapReader()

    @staticmethod
    def decode(fetched: FetchResponse, *, wants_text: bool = True) -> PageText:
        """Return the body as text. `wants_text` False: it may stay apart (`PageText.is_apart`)."""
        content_type = _content_type(fetched)
        if not fetched.body:
            return PageText("", "", content_type)
        if not wants_text and is_utf8_as_it_is(fetched.body, content_type):
            return PageText(None, "utf-8", content_type, is_apart=True)
        text, encoding, strict = decode(fetched.body, content_type)
        return PageText(text if strict else None, encoding, content_type)

    async def read(self, attempt: Attempt, fetched: FetchResponse) -> FinishedLease:
        """Return the result of a request whose response is a page."""
        if attempt.payload.asset is not None:
            finished = read_asset(attempt, fetched, self._tally)
            finished.size = output_size(finished.outputs[0]) + batches_size(finished.batches)
            return finished
        context, lease, body = attempt.context, attempt.lease, fetched.body
        custom_parse = context.custom_parse
        decoded = self.decode(fetched, wants_text=self._wants_text or custom_parse)
        if fetched.status != NOT_MODIFIED and is_sitemap(attempt, body):
            return await self._read_sitemap(attempt, fetched, decoded)
        follows = context.follows_links_at(lease.depth)
        links: Links | None = None
        data_epoch = 0
        document: HtmlDocument | None = None
        # A spider with its own `parse` asks for links when it wants them.
        # An answer that the page is as it was (304) has no body.
        is_page = fetched.status != NOT_MODIFIED and is_html(decoded.content_type, body, fetched.headers)
        if (follows or context.reads_html) and is_page:
            # The bytes, not the text: the parser takes UTF-8, which most pages are in already.
            document = HtmlDocument(body, decoded.encoding)
            self._tally.html += follows
            if follows and fetched.truncated:
                self._tally.leave_unread("truncated", attempt.url)
            if context.include_links or (follows and not custom_parse):
                data_epoch = context.data_epoch
                links = context.extract_links(
                    document,
                    attempt.url,
                    encoding=decoded.encoding,
                    nofollow=fetched.headers_by_name is None and context.asks_nofollow(fetched.headers),
                    data_epoch=data_epoch,
                )
        elif follows and looks_like_html(body):
            self._tally.leave_unread("not_html", attempt.url)
        if context.terms.content is not None and is_page:
            attempt.content_encoding = decoded.encoding  # the fetcher extracts the content later, with this
        record = page_record(attempt, fetched, decoded, now=time.time(), links=(links and links.texts) or ())
        output = Output(record=record, body=body, wires=attempt.wires, body_apart=decoded.is_apart)
        finished = FinishedLease(Settlement(lease, Outcome.FETCHED), [output], size=output_size(output))
        if custom_parse or attempt.page_error is not None:
            if not await self._run_spider(attempt, finished, document, decoded):
                return finished
        elif links is not None and follows:
            _add_all_links(context, lease, links, finished, self._counts, data_epoch)
            finished.size += urls_size(links.urls)
        if follows and context.watches_patterns:
            self._counts.patterns.count(lease.run, attempt.url, lease.depth)
        if context.asset_kinds and document is not None:
            size = batches_size(finished.batches)
            add_assets(attempt, document, decoded.encoding, finished)
            finished.size += batches_size(finished.batches) - size
        if context.extracts and not attempt.is_shell:
            add_items(context, document, finished, self._tally)
        if fetched.screenshot:
            add_screenshot(attempt, fetched, finished)
        if not attempt.is_shell:  # which counts as a failure
            self._counts.count_page(attempt.url, lease.spider, fetched.status)
        return finished

    async def _read_sitemap(self, attempt: Attempt, fetched: FetchResponse, decoded: PageText) -> FinishedLease:
        """Return the result of a request whose response is a sitemap."""
        context, lease = attempt.context, attempt.lease
        if fetched.truncated and not attempt.payload.sitemap:
            # Only now it is known to be one: it is fetched again with the limit of sitemaps.
            return FinishedLease(Settlement(lease, Outcome.FORWARDED, payload=attempt.packed(sitemap=True)))
        found = await self._sitemaps.read(attempt, fetched)
        for reason in found.unread:
            self._tally.leave_unread(reason, attempt.url)
        # The summary names pages that only the sitemap lists. Other spiders and a limited depth do not show all links.
        if context.spider.follows_all_links and context.terms.maxdepth is None:
            self._counts.list_pages(found.unlinked)
        record = page_record(attempt, fetched, decoded, now=time.time())
        output = Output(
            record=record,
            body=fetched.body,
            wires=tuple(attempt.wires),
            body_apart=decoded.is_apart,
            is_sitemap=True,
        )
        self._tally.pages += 1
        self._tally.status(lease.spider, fetched.status)
        batches = [*found.pages, *found.sitemaps]
        return FinishedLease(
            Settlement(lease, Outcome.FETCHED, drops=found.drops or None),
            [output],
            batches,
            dates=found.dates if context.terms.recrawl is not None else {},
            size=output_size(output) + batches_size(batches),
        )


def _content_type(fetched: FetchResponse) -> str:
    """Return the Content-Type of a response; empty: it has none."""
    plain = fetched.headers_by_name and fetched.headers_by_name.get("Content-Type")  # of which there is one at most
    return plain[0] if plain else content_type_of(header_lines(fetched.headers, "content-type"))


def _add_all_links(
    context: Context, lease: Lease, links: Links, finished: FinishedLease, counts: WorkerCounts, data_epoch: int
) -> None:
    """Add every link of the page that may be new, grouped by domain. This runs for every page of most crawls, so it
    must make no object for each link. `data_epoch`: a number that changes when the frontier may have lost what it
    confirmed; it was read since the last await, and before the links are sent."""
    drops: dict[str, int] = {}
    for reason, count in links.dropped.items():
        count_drop(drops, drop_reason(reason), count)
    if links.urls:
        unknown = context.unseen_positions(links, data_epoch=data_epoch)
        known = len(links.urls) - len(unknown)
        if known:
            count_drop(drops, DropReason.DUPLICATE, known)
        if unknown:
            finished.batches = _grouped(lease, links, unknown if known else None)
        # Also where nothing is sent: the hrefs of the known links are remembered then.
        finished.on_links_added = partial(_confirm_links, context, links, counts, data_epoch)
    if drops:
        finished.settlement.drops = drops


def _confirm_links(context: Context, links: Links, counts: WorkerCounts, since: int, rejected: Collection[int]) -> None:
    """Remember the links, which the frontier has now, without those that it rejected. `since`: the data epoch before
    they were sent."""
    context.confirm(links, rejected, since=since)
    if counts.listed:
        counts.link(links.fingerprints)


def _grouped(lease: Lease, links: Links, positions: list[int] | None) -> list[Batch]:
    """Return batches by domain of the links at these positions; None: all links."""
    urls, fingerprints, domains = links.urls, links.fingerprints, links.domains
    if positions is not None:
        urls = [urls[at] for at in positions]
        fingerprints = [fingerprints[at] for at in positions]
        domains = [domains[at] for at in positions]
    priority, depth, render = child_priority(lease.priority), lease.depth + 1, lease.terms.render
    if domains.count(domains[0]) == len(domains):
        return [Batch(lease.spider, domains[0], priority, depth, urls, fingerprints, render=render)]
    batches: dict[str, Batch] = {}
    for url, fingerprint, domain in zip(urls, fingerprints, domains, strict=True):
        batch = batches.get(domain)
        if batch is None:
            batch = batches[domain] = Batch(lease.spider, domain, priority, depth, render=render)
        batch.urls.append(url)
        batch.fingerprints.append(fingerprint)
    return list(batches.values())
