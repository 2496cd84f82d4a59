"""Main content of fetched pages, for crawls that ask for it: which pages get it, and how many may wait for it.

Processes of a pool extract it (`extract/content_pool.py`), because a page may take seconds. A page keeps its lease, the
worker's claim on its request, until its content is there; so the page is committed with it, and a worker that dies
loses nothing. Fixed: in a pool of workers that many crawls share, pages that wait for their content never take all
slots of the worker, or one crawl would stop the others. Safe to change: the share of the slots, and the delays.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator

from gossamer.commit.outlinks import FinishedLease
from gossamer.extract.content_pool import ContentPool
from gossamer.extract.content_process import ContentReply
from gossamer.model.content import ContentError, ContentOptions, PageContent, content_items
from gossamer.model.record import Output, PageRecord
from gossamer.telemetry.tally import Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.records import item_record

_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0
"""Delays of a request that is given back because too many pages wait for their content. May be tuned: shorter ones
cost more calls and hits, longer ones may leave the pool of processes without work."""


class PageContents:
    """Adds the main content to the pages of one worker."""

    def __init__(self, make_pool: Callable[[], ContentPool] | None, tally: Tally, *, max_pages: int | None) -> None:
        """`make_pool` None: text cannot be extracted here. `max_pages`: pages of crawls that ask for content which may
        be in progress at once, fetched or not. None: any number."""
        self._make_pool = make_pool
        self._pool: ContentPool | None = None
        self._tally = tally
        self._max_pages = max_pages
        self._in_progress = 0
        self._seconds = 0.0

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """Count a request in progress."""
        self._in_progress += 1
        try:
            yield
        finally:
            self._in_progress -= 1

    @property
    def delay_seconds(self) -> float:
        """Seconds for which a request has to be given back, because too many are in progress. 0: it may be fetched."""
        if self._max_pages is None or self._in_progress < self._max_pages:
            return 0.0
        return min(max(2 * self._seconds, _SHORTEST_DELAY_SECONDS), _LONGEST_DELAY_SECONDS)

    async def add(self, attempt: Attempt, finished: FinishedLease, encoding: str) -> None:
        """Add the content to the outputs of a fetched HTML page: to its record, as items, or both.

        Never raises for the page. Content that cannot be extracted has a reason, which the record has in any case.
        """
        options = attempt.context.terms.content
        page = finished.outputs[0]
        record = page.record
        assert options is not None
        assert isinstance(record, PageRecord)
        started = asyncio.get_running_loop().time()
        reply = await self._extract(attempt, page.body, encoding, options)
        self._seconds = asyncio.get_running_loop().time() - started
        content = reply.content or PageContent(error=ContentError.CRASHED)
        if content.error:
            self._tally.no_content[content.error] = self._tally.no_content.get(content.error, 0) + 1
        if options.in_record or content.error:
            record.content = content
            finished.size += len(content.text or "") + len(content.markdown or "")
        if options.in_items:
            items = content_items(content, reply.chunks, record.response_url, options)
            finished.outputs = [*finished.outputs, *(Output(record=item_record(record, item)) for item in items)]
            finished.size += sum(len(value) for item in items for value in item.values() if isinstance(value, str))
            self._tally.items += len(items)

    async def _extract(self, attempt: Attempt, body: bytes, encoding: str, options: ContentOptions) -> ContentReply:
        if self._pool is None:
            if self._make_pool is None:
                return ContentReply(PageContent(error=ContentError.UNAVAILABLE))
            self._pool = self._make_pool()
        group = attempt.lease.run.crawl.id
        return await self._pool.extract(body, encoding=encoding, url=attempt.url, options=options, group=group)

    async def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            await self._pool.close()
