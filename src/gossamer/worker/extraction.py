"""Adds to a page's result what a crawl extracts from pages: items by its rules, and the main content.

Processes of a pool extract main content (`extract/content_pool.py`), because a page may take seconds. A page keeps its
lease, the worker's claim on its request, until its content is there; so the page is committed with it, and a worker
that dies loses nothing. Safe to change: what is counted, the share of the slots, and the delays. Fixed: the page's own
record stays the first output, whatever the rules find; the words of `PageRecord.extract_error`, which are in records;
and in a pool of workers that many crawls share, pages that wait for their content never take all slots of the worker,
or one crawl would stop the others.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from gossamer.commit.outlinks import FinishedLease
from gossamer.extract.content_pool import ContentPool
from gossamer.extract.content_process import ContentReply
from gossamer.extract.document import HtmlDocument
from gossamer.model.content import ContentError, ContentOptions, PageContent, content_items
from gossamer.model.crawl import SHARED_POOL
from gossamer.model.extraction import rule_label
from gossamer.model.record import Output, PageRecord
from gossamer.telemetry.tally import RuleCount, Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context
from gossamer.worker.records import item_record

if TYPE_CHECKING:
    from gossamer.extract.fields import CompiledExtraction, PageItems

_TOO_COMPLEX, _LIMIT = "too_complex", "limit"
ITEM_BYTES = 1000
"""Approximate memory of an item besides the text of its values. Tuning only: more lets fewer pages wait for a slow
output at once."""


def add_items(context: Context, document: HtmlDocument | None, finished: FinishedLease, tally: Tally) -> None:
    """Add the items of a page to the outputs of its request, whose first one is the page's record.

    `document` None: the page is not HTML. Only HTML with a status from 200 to 299 has items: other pages are about
    errors."""
    page, rules = finished.outputs[0].record, context.rules
    if rules is None or not isinstance(page, PageRecord):
        return
    counts = context.run.crawl.pool != SHARED_POOL
    if counts and not tally.rules:
        for at, rule in enumerate(rules.rules):
            tally.rules[rule_label(rule, at, len(rules.rules))] = RuleCount(fields=dict.fromkeys(rule.fields, 0))
    if document is None or not 200 <= page.status_code < 300 or not rules.is_for(page.response_url):
        return
    found = rules.extract(document, page.response_url)
    if found is None:
        page.extract_error = _TOO_COMPLEX
        return
    if found.cut:
        page.extract_error = _LIMIT
    items = [Output(record=item_record(page, item)) for item in found.items]
    if items:
        finished.outputs = [*finished.outputs, *items]
        finished.size += ITEM_BYTES * len(items) + found.characters
        tally.items += len(items)
    if counts:
        _count(rules, found, tally)


def _count(rules: "CompiledExtraction", found: "PageItems", tally: Tally) -> None:
    """Count what each rule found on a page."""
    for result in found.results:
        name = rule_label(rules.rules[result.rule], result.rule, len(rules.rules))
        count = tally.rules.setdefault(name, RuleCount())
        count.pages += 1
        count.items += len(result.items)
        for field in result.found:
            count.fields[field] = count.fields.get(field, 0) + 1
        for field, lacking in result.lacking.items():
            count.lacking[field] = count.lacking.get(field, 0) + lacking


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
