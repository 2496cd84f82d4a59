"""The page indexes of the crawls that a worker fetches for.

A worker enters each batch of results before it writes their records, adds their links and settles their leases. So a
kill at any line loses neither a page, nor its schedule, nor its change: the batch comes again, and the index knows the
ids of its requests. Fixed: that order, and that a link is only left out if its page is in the index.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from gossamer.commit.outlinks import FinishedLease
from gossamer.errors import BadInput, SinkError
from gossamer.extract.encoding import is_html
from gossamer.fresh.index import PageIndex
from gossamer.fresh.main_text import ContentFacts, body_hash, content_of
from gossamer.fresh.open_indexes import OpenIndexes
from gossamer.fresh.page import Fetch, Found, PageKind, short_hash
from gossamer.fresh.validators import validators
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.crawl import CrawlId, QueryOrder, RevisitRule, Terms
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.model.request import Batch, DropReason, Lease, Outcome, Payload, Settlement, pack, unpack
from gossamer.policy.change_dates import announced_changes
from gossamer.policy.priorities import child_priority, sitemap_priority
from gossamer.policy.scope import scope_of
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query
from gossamer.sinks.base import SinkThread

_MISSING = 404
_GONE = 410
_NOT_MODIFIED = 304
_REFUSALS = frozenset((DropReason.ROBOTS, DropReason.BLACKLISTED, DropReason.BLOCKED_ADDRESS))
"""Reasons why a page may not be fetched. Other requests without a page failed."""
_FEED: Final = pack(Payload(sitemap=True, listed=True))
"""Payload of a feed that a page names."""
OpenIndex = Callable[[CrawlId, Terms], PageIndex]
"""Opens the index of a crawl whose requests have these terms."""


class IndexedVisits:
    """Indexes of crawls, opened when their first results come. Implements VisitedPages (commit/committer.py)."""

    def __init__(self, open_index: OpenIndex, thread: SinkThread, *, secret: int) -> None:
        """`secret`: the frontier's key for fingerprints."""
        self._open_index = open_index
        self._thread = thread
        self._secret = secret
        self._indexes = OpenIndexes()

    async def enter(self, finished: Sequence[FinishedLease]) -> None:
        crawls: dict[CrawlId, list[FinishedLease]] = {}
        for page in finished:
            lease = page.settlement.lease
            if lease.terms.recrawl is not None:
                crawls.setdefault(lease.run.crawl.id, []).append(page)
        if crawls:
            await self._thread.run(lambda: self._enter(crawls))

    async def without_known(self, lease: Lease, batches: Sequence[Batch]) -> list[Batch]:
        if lease.terms.recrawl is None:
            return list(batches)
        finished = FinishedLease(Settlement(lease, Outcome.FETCHED), batches=list(batches))
        await self._thread.run(lambda: _drop_known(self._index(lease.run.crawl.id, lease.terms), [finished]))
        return finished.batches

    async def close(self) -> None:
        await self._thread.run(self._indexes.close)

    def _enter(self, crawls: dict[CrawlId, list[FinishedLease]]) -> None:
        for crawl, pages in crawls.items():
            index = self._index(crawl, pages[-1].settlement.lease.terms)
            for page in pages:
                if page.dates:
                    _announce(index, page)
            _drop_known(index, [page for page in pages if page.batches])
            fetches: dict[str, Fetch] = {}
            for page in pages:
                items = _items_hash(page.outputs)
                for output in page.outputs:
                    if output.asset is None and isinstance(output.record, PageRecord):
                        kind, rule = _kind(page.settlement.lease, output), index.rule(output.record.url)
                        found = fetches_of(output, output.record, kind, rule, items, index.key)
                        if index.keeps_versions:
                            found = [
                                msgspec.structs.replace(one, content=output.body, encoding=output.record.encoding)
                                for one in found
                            ]
                        fetches.update((fetch.url, fetch) for fetch in found)
                        if not index.ignores_feeds and (feeds := [url for fetch in found for url in fetch.feeds]):
                            self._add_feeds(index, page, feeds)
                        if found and found[-1].kind is not PageKind.PAGE and output.record.success:
                            _want_hub(index, found[-1].url, output, output.record)
            index.settle(list(fetches.values()))
            # Archives refer to the response that a 304 confirms.
            confirmed = {
                fetch.url for page in pages for output in page.outputs if output.wires
                if (fetch := fetches.get(output.record.url)) is not None and fetch.found is Found.NOT_MODIFIED
            }  # fmt: skip
            captured = index.captured(confirmed) if confirmed else {}
            for page in pages:
                for output in page.outputs:
                    output.captured = captured.get(output.record.url, 0.0)

    def _add_feeds(self, index: PageIndex, page: FinishedLease, urls: Sequence[str]) -> None:
        """Add the feeds that a page names to its links, as far as they are new, in scope and not too many. They are
        read as sitemaps."""
        lease = page.settlement.lease
        terms = lease.terms
        if terms.maxdepth is not None and lease.depth >= terms.maxdepth:
            return
        scope = scope_of(msgspec.structs.replace(terms, deny_extensions=()))
        batches: dict[str, Batch] = {}
        for url in index.admit_feeds([url for url in urls if scope.reason(url) is None]):
            domain = registered_domain(host(url))
            if (batch := batches.get(domain)) is None:
                priority = sitemap_priority(child_priority(lease.priority))
                batch = batches[domain] = Batch(lease.spider, domain, priority, lease.depth + 1, payloads=[])
            compared = with_sorted_query(url) if terms.query_order is QueryOrder.IGNORED else url
            batch.urls.append(url)
            batch.fingerprints.append(fingerprint(compared, seed=spider_seed(self._secret, lease.spider)))
            batch.payloads = [*(batch.payloads or ()), _FEED]
        page.batches = [*page.batches, *batches.values()]

    def _index(self, crawl: CrawlId, terms: Terms) -> PageIndex:
        """Return the index of a crawl, with the options of its latest request. Raises SinkError for one that cannot be
        used, too: the call is repeated until it is repaired."""

        def opened() -> PageIndex:
            try:
                return self._open_index(crawl, terms)
            except BadInput as error:  # the worker would end, and the pages would be fetched again and again
                raise SinkError(f"the page index of {crawl} cannot be used: {error.fault}") from error

        index = self._indexes.of(crawl, opened)
        assert terms.recrawl is not None
        index.follow(terms.recrawl)
        return index


def _kind(lease: Lease, output: Output) -> PageKind:
    """Return the kind of the page that was requested."""
    if lease.payload is not None and (payload := unpack(lease.payload)).sitemap:
        return PageKind.LISTED_SITEMAP if payload.listed else PageKind.SITEMAP
    return PageKind.LIST if output.is_sitemap else PageKind.PAGE


def _items_hash(outputs: Sequence[Output]) -> int:
    """Return the hash of the items of a page; 0: there are none."""
    items = [output.record.item for output in outputs if isinstance(output.record, ItemRecord)]
    return short_hash(body_hash(encode_value(items))) if items else 0


def fetches_of(
    output: Output, record: PageRecord, kind: PageKind, rule: RevisitRule, items: int, key_of: Callable[[str], int]
) -> list[Fetch]:
    """Return what a record says about pages: the one of its URL, and the one that its redirects led to. `key_of`:
    returns the key of a URL in the index."""
    at = datetime.fromisoformat(record.timestamp).timestamp()
    found = _found(record)
    if record.reason == DropReason.DUPLICATE and not record.redirects:
        return []  # it says nothing about the page
    is_moved = bool(record.redirects) and record.response_url != record.url
    fetches = []
    if is_moved:
        fetches.append(
            Fetch(
                url=record.url, request_id=record.request_id, at=at, found=Found.REDIRECTED, depth=record.depth,
                status=record.redirects[0].status, target=record.response_url, kind=kind,
            )
        )  # fmt: skip
        if found not in (Found.CONTENT, Found.MISSING, Found.GONE):
            return fetches
    etag, modified = validators(record.response_headers)
    url = record.response_url if is_moved else record.url
    body, content = 0, ContentFacts(0)
    if found is Found.CONTENT:
        body = body_hash(output.body)
        headers = [(name, value) for name, value in record.header_pairs]
        is_page = is_html(record.content_type, output.body, headers)
        content = content_of(output.body, record.encoding, url, rule=rule, is_html=is_page, key_of=key_of)
    fetches.append(
        Fetch(
            url=url,
            request_id=record.request_id,
            at=at,
            found=found,
            depth=record.depth,
            status=record.status_code,
            body=body,
            text=content.text,
            sketch=content.sketch,
            items=items,
            link_set=content.link_set,
            feeds=content.feeds,
            etag=etag,
            modified=modified,
            new_links=output.new_links,
            kind=kind,
        )
    )
    return fetches


def _found(record: PageRecord) -> Found:
    """Return the result of a request."""
    if record.success:
        return Found.NOT_MODIFIED if record.status_code == _NOT_MODIFIED else Found.CONTENT
    if record.status_code == _MISSING or (record.refusal is not None and record.refusal.kind == "not_found"):
        return Found.MISSING
    if record.status_code == _GONE:
        return Found.GONE
    return Found.REFUSED if record.reason in _REFUSALS else Found.FAILED


def _announce(index: PageIndex, page: FinishedLease) -> None:
    """Enter the times of last changes that a sitemap announces, also of sitemaps that it names for the first time."""
    times = announced_changes(page.dates, now=index.clock())
    unknown = set(index.announce(times).unknown)
    if unknown and (parts := [url for batch in page.batches if _is_sitemap(batch) for url in batch.urls]):
        index.enter([url for url in parts if url in unknown], depth=page.settlement.lease.depth, announced=times)


def _want_hub(index: PageIndex, url: str, output: Output, record: PageRecord) -> None:
    """Note the hub of a feed, which a service subscribes to. The topic has to be of the site of the feed."""
    from gossamer.extract.hub_links import hub_links  # imported late: many crawls fetch no feeds

    hub, topic = hub_links([(name, value) for name, value in record.header_pairs], output.body, url)
    if hub and topic and registered_domain(host(topic)) == registered_domain(host(url)):
        index.subscriptions.want(topic, hub, now=index.clock())


def _admitted(index: PageIndex, lease: Lease, batch: Batch, places: list[int], keys: Mapping[str, int]) -> list[int]:
    """Return those of some places in a batch, of links to pages that the index does not know, for which the limits of
    the crawl leave room."""
    most, domain_most = lease.run.crawl.max_pages, lease.terms.domain_max_pages
    if not places or (most is None and domain_most is None) or batch.spider == ASSET_SPIDER or _is_sitemap(batch):
        return places
    links = [(keys[batch.urls[at]], batch.domain) for at in places]
    found = index.room.admitted(links, most=most, domain_most=domain_most)
    return [at for at in places if keys[batch.urls[at]] in found]


def _is_sitemap(batch: Batch) -> bool:
    """Return whether a batch has sitemaps, all of whose payloads are equal."""
    first = batch.payloads[0] if batch.payloads else None
    return first is not None and unpack(first).sitemap


def _drop_known(index: PageIndex, pages: Sequence[FinishedLease]) -> None:
    """Take the links to pages that the index knows out of these results, because it decides when they are fetched
    again. Count the others."""
    key = index.key
    keys = {url: key(url) for page in pages for batch in page.batches for url in batch.urls}
    known = index.known(keys.values())
    parts = {keys[url] for page in pages if page.dates for batch in page.batches if _is_sitemap(batch)
             for url in batch.urls}  # fmt: skip
    if parts:
        known -= index.wanted_parts(parts)
    for page in pages:
        new = left_out = beyond = 0
        for batch in page.batches:
            payloads = batch.payloads
            kept = [at for at, url in enumerate(batch.urls) if keys[url] not in known]
            left_out += len(batch.urls) - len(kept)
            admitted = _admitted(index, page.settlement.lease, batch, kept, keys)
            beyond += len(kept) - len(admitted)
            new += len(admitted)
            if len(admitted) == len(batch.urls):
                continue
            batch.urls = [batch.urls[at] for at in admitted]
            batch.fingerprints = [batch.fingerprints[at] for at in admitted]
            batch.payloads = payloads and [payloads[at] for at in admitted]
        page.batches = [batch for batch in page.batches if batch.urls]
        for reason, number in ((DropReason.DUPLICATE, left_out), (DropReason.BUDGET, beyond)):
            if number:
                drops = dict(page.settlement.drops or {})
                drops[reason] = drops.get(reason, 0) + number
                page.settlement.drops = drops
        for output in page.outputs[:1]:
            output.new_links = new
