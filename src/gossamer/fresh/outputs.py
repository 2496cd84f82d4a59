"""The page index as an output of a worker, and the filter of links that lead to pages that the index knows.

A worker writes the index with the records of a batch, before it adds their links and settles their leases. So a kill at
any line loses neither a page, nor its schedule, nor its change: the batch is written again, and the index knows the ids
of its requests. Fixed: that order, and that a link is only left out if its page is in the index.
"""

from collections.abc import Sequence
from datetime import datetime

from gossamer.commit.outlinks import FinishedLease
from gossamer.extract.encoding import is_html
from gossamer.fresh.index import PageIndex
from gossamer.fresh.main_text import body_hash, text_hash
from gossamer.fresh.page import Fetch, Found
from gossamer.fresh.validators import validators
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import DropReason, unpack
from gossamer.sinks.base import SinkThread

_MISSING = 404
_GONE = 410
_NOT_MODIFIED = 304
_REFUSALS = frozenset((DropReason.ROBOTS, DropReason.BLACKLISTED, DropReason.BLOCKED_ADDRESS))
"""Reasons why a page may not be fetched. Other requests without a page failed."""


class PageIndexSink:
    """Output that enters pages in the index. Implements Sink (sinks/base.py)."""

    wants_wire = False
    wants_text = False

    def __init__(self, index: PageIndex, thread: SinkThread) -> None:
        self._index = index
        self._thread = thread

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._write(outputs))

    async def close(self) -> None:
        await self._thread.run(self._index.close)

    def _write(self, outputs: Sequence[Output]) -> None:
        fetches: dict[str, Fetch] = {}
        for output in outputs:
            if output.asset is None and not output.is_sitemap and isinstance(output.record, PageRecord):
                fetches.update((fetch.url, fetch) for fetch in fetches_of(output, output.record))
        self._index.settle(list(fetches.values()))


def fetches_of(output: Output, record: PageRecord) -> list[Fetch]:
    """Return what a record says about pages: the one of its URL, and the one that its redirects led to."""
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
                status=record.redirects[0].status, target=record.response_url,
            )
        )  # fmt: skip
        if found not in (Found.CONTENT, Found.MISSING, Found.GONE):
            return fetches
    etag, modified = validators(record.response_headers)
    body = text = 0
    if found is Found.CONTENT:
        body = body_hash(output.body)
        headers = [(name, value) for name, value in record.header_pairs]
        text = text_hash(output.body, record.encoding, is_html=is_html(record.content_type, output.body, headers))
    fetches.append(
        Fetch(
            url=record.response_url if is_moved else record.url,
            request_id=record.request_id,
            at=at,
            found=found,
            depth=record.depth,
            status=record.status_code,
            body=body,
            text=text,
            etag=etag,
            modified=modified,
            new_links=output.new_links,
        )
    )
    return fetches


def _found(record: PageRecord) -> Found:
    """Return the result of a request."""
    if record.success:
        return Found.NOT_MODIFIED if record.status_code == _NOT_MODIFIED else Found.CONTENT
    if record.status_code == _MISSING:
        return Found.MISSING
    if record.status_code == _GONE:
        return Found.GONE
    return Found.REFUSED if record.reason in _REFUSALS else Found.FAILED


class IndexedPages:
    """Leaves out links to pages that the index knows: it decides when they are fetched again."""

    def __init__(self, index: PageIndex, thread: SinkThread) -> None:
        self._index = index
        self._thread = thread

    async def drop_known(self, finished: Sequence[FinishedLease]) -> None:
        """Take the links to known pages out of the batches of these pages, and count what is new."""
        pages = [page for page in finished if page.batches]
        if pages:
            await self._thread.run(lambda: self._drop_known(pages))

    def _drop_known(self, pages: Sequence[FinishedLease]) -> None:
        key = self._index.key
        keys = {url: key(url) for page in pages for batch in page.batches for url in batch.urls}
        known = self._index.known(keys.values())
        for page in pages:
            new = left_out = 0
            for batch in page.batches:
                payloads = batch.payloads
                kept = [
                    at
                    for at, url in enumerate(batch.urls)
                    if keys[url] not in known or (payloads is not None and _is_sitemap(payloads[at]))
                ]
                new += len(kept)
                if len(kept) == len(batch.urls):
                    continue
                left_out += len(batch.urls) - len(kept)
                batch.urls = [batch.urls[at] for at in kept]
                batch.fingerprints = [batch.fingerprints[at] for at in kept]
                batch.payloads = payloads and [payloads[at] for at in kept]
            page.batches = [batch for batch in page.batches if batch.urls]
            if left_out:
                drops = dict(page.settlement.drops or {})
                drops[DropReason.DUPLICATE] = drops.get(DropReason.DUPLICATE, 0) + left_out
                page.settlement.drops = drops
            for output in page.outputs[:1]:
                output.new_links = new


def _is_sitemap(payload: bytes | None) -> bool:
    return payload is not None and unpack(payload).sitemap
