"""Adds to a page's result what a crawl takes from pages: items by its rules, the main content, and assets to fetch.

Processes of a pool extract main content (`extract/content_pool.py`), because a page may take seconds. A page keeps its
lease, the worker's claim on its request, until its content is there; so the page is committed with it, and a worker
that dies loses nothing. An asset is a file that a page embeds or links; it is a request of its own.

Fixed: the page's own record stays the first output, whatever the rules find; the words of `PageRecord.extract_error`
and the reasons of assets, which are in records; and in a pool of workers that many crawls share, pages that wait for
their content never take all slots of the worker, or one crawl would stop the others.
"""

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from gossamer.commit.outlinks import FinishedLease, LinksAddedCallback
from gossamer.extract.document import HtmlDocument
from gossamer.extract.encoding import content_type_of, decode
from gossamer.fetch.exchange import FetchResponse, header_lines
from gossamer.fetch.faults import ResponseFault
from gossamer.model.assets import ASSET_SPIDER, SCREENSHOTS, Asset, kind_of_response
from gossamer.model.content import ContentChunk, ContentError, ContentOptions, PageContent, content_items
from gossamer.model.extraction import rule_label
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import Batch, Outcome, Payload, Settlement, pack
from gossamer.policy.urls import fingerprint, host, registered_domain
from gossamer.telemetry.tally import RuleCount, Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.context import Context
from gossamer.worker.records import PageText, item_record, page_record

if TYPE_CHECKING:
    from gossamer.extract.content_pool import ContentPool
    from gossamer.extract.fields import CompiledExtraction, PageItems

_TOO_COMPLEX, _CUT, _LIMIT = "too_complex", "cut", "limit"
"""Values of `PageRecord.extract_error`: the page is too complex for the rules; only its beginning was searched; it has
more items than are taken. Fixed: records hold them."""
ITEM_BYTES = 1000
"""Approximate memory of an item besides the text of its values. More lets fewer pages wait for a slow output at
once."""


def add_items(context: Context, document: HtmlDocument | None, finished: FinishedLease, tally: Tally) -> None:
    """Add the items of a page to the outputs of its request, whose first one is the page's record.

    `document` None: the page is not HTML. Only HTML with a status from 200 to 299 has items: other pages are about
    errors."""
    page, rules = finished.outputs[0].record, context.rules
    if rules is None or not isinstance(page, PageRecord):
        return
    counts = not context.run.crawl.is_of_service  # workers of many crawls would mix up the counts of their rules
    if counts and not tally.rules:
        for at, rule in enumerate(rules.rules):
            tally.rules[rule_label(rule, at, len(rules.rules))] = RuleCount(fields=dict.fromkeys(rule.fields, 0))
    if document is None or not 200 <= page.status_code < 300 or not rules.is_for(page.response_url):
        return
    found = rules.extract(document, page.response_url)
    if found is None:
        page.extract_error = _TOO_COMPLEX
        return
    if found.cut or document.cut:
        page.extract_error = _LIMIT if found.cut else _CUT
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


# Delays of a request that is given back because too many pages wait for their content. Shorter ones cost more calls and
# hits, longer ones may leave the pool of processes without work.
_SHORTEST_DELAY_SECONDS = 1.0
_LONGEST_DELAY_SECONDS = 30.0


class PageContents:
    """Adds the main content to the pages of one worker."""

    def __init__(self, make_pool: "Callable[[], ContentPool | None]", tally: Tally, *, max_pages: int | None) -> None:
        """`make_pool` returns None if text cannot be extracted here. `max_pages`: pages of crawls that ask for content
        which may be in progress at once, fetched or not. None: any number."""
        self._make_pool = make_pool
        self._pool: ContentPool | None = None
        self._tally = tally
        self._max_pages = max_pages
        self._in_progress = 0
        self._seconds = 0.0
        """Time of the latest page in the pool, with its wait for a process."""

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
        content, chunks = await self._extract(attempt, page.body, encoding, options)
        self._seconds = asyncio.get_running_loop().time() - started
        if content.error:
            self._tally.no_content[content.error] = self._tally.no_content.get(content.error, 0) + 1
        if options.in_record or content.error:
            record.content = content
            finished.size += len(content.text or "") + len(content.markdown or "")
        if options.in_items:
            items = content_items(content, chunks, record.response_url, options)
            finished.outputs = [*finished.outputs, *(Output(record=item_record(record, item)) for item in items)]
            finished.size += sum(len(value) for item in items for value in item.values() if isinstance(value, str))
            self._tally.items += len(items)

    async def _extract(
        self, attempt: Attempt, body: bytes, encoding: str, options: ContentOptions
    ) -> tuple[PageContent, list[ContentChunk] | None]:
        if self._pool is None:
            self._pool = self._make_pool()
            if self._pool is None:
                return PageContent(error=ContentError.UNAVAILABLE), None
        group = attempt.lease.run.crawl.id
        reply = await self._pool.extract(body, encoding=encoding, url=attempt.url, options=options, group=group)
        return reply.content or PageContent(error=ContentError.CRASHED), reply.chunks

    async def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            await self._pool.close()


# --- assets -----------------------------------------------------------------------------------------------------------

_MAX_LEVEL = 4
"""Number of steps from a page to an asset: 1 for what it names itself, 2 for what its style sheets name, and so on. A
limit is needed, because a style sheet may import another one without end."""
_MAX_REFERRER_CHARACTERS = 2048
"""Longest referrer that is kept with an asset. The frontier has it once for each asset that waits."""
_WRONG_TYPE, _TOO_LARGE, _INCOMPLETE = "wrong_type", "too_large", "incomplete"
"""Reasons of failed assets: the response is of no kind that is wanted; it is larger than `fetch.max_asset`; its
compression is damaged or ends early. Fixed: records hold them."""


def add_assets(attempt: Attempt, document: HtmlDocument, encoding: str, finished: FinishedLease) -> None:
    """Add the assets of a page to the requests that its result leads to. Those that the frontier is known to have are
    left out."""
    from gossamer.extract.assets import find_assets  # imported late: most crawls fetch none

    found = find_assets(document, attempt.url, attempt.context.asset_kinds, encoding=encoding)
    _add_requests(attempt, found, finished, level=1)


def read_asset(attempt: Attempt, fetched: FetchResponse, tally: Tally) -> FinishedLease:
    """Return the result of a request for an asset; the caller sets its size. A style sheet leads to further assets."""
    asset = attempt.payload.asset
    assert asset is not None
    content_type = content_type_of(header_lines(fetched.headers, "content-type"))
    kinds = attempt.context.asset_kinds
    kind = kind_of_response(asset.kind, content_type, attempt.url)
    cut = _INCOMPLETE if ResponseFault.BODY in fetched.faults else _TOO_LARGE
    reason = _WRONG_TYPE if kind not in kinds else cut if fetched.truncated else ""
    # The body is not in the record: outputs that take assets write its bytes.
    record = page_record(attempt, fetched, PageText("", "", content_type), now=time.time(), failure=reason)
    output = Output(
        record=record,
        body=fetched.body,
        wires=tuple(attempt.wires),
        asset=Asset(kind=kind or asset.kind, referrer=asset.referrer, level=asset.level),
    )
    outcome = Outcome.FAILED if reason else Outcome.FETCHED
    finished = FinishedLease(Settlement(attempt.lease, outcome, reason), [output])
    if reason:
        tally.fail_asset(reason)
    else:
        tally.assets += 1
    tally.status(attempt.lease.spider, fetched.status)
    if kind == "css" and not reason and asset.level < _MAX_LEVEL:
        from gossamer.extract.assets import find_css_assets

        css, _, _ = decode(fetched.body, content_type)
        _add_requests(attempt, find_css_assets(css, attempt.url, kinds), finished, level=asset.level + 1)
    return finished


def add_screenshot(attempt: Attempt, fetched: FetchResponse, finished: FinishedLease) -> None:
    """Add the screenshot of a rendered page to the outputs of the page, as an asset."""
    image = msgspec.structs.replace(
        fetched,
        body=b"",
        headers=[("Content-Type", "image/png")],
        headers_by_name=None,
        rendering=None,
        render_choice="",
    )
    record = page_record(attempt, image, PageText("", "", "image/png"), now=time.time())
    record.spiderid = ASSET_SPIDER
    # Consumers tell repeated records by it, and this is none of the page's.
    record.request_id = hashlib.blake2b(f"{record.request_id}:screenshot".encode(), digest_size=16).hexdigest()
    asset = Asset(kind=SCREENSHOTS, referrer=attempt.url)
    finished.outputs = [*finished.outputs, Output(record=record, body=fetched.screenshot, asset=asset)]
    finished.size += len(fetched.screenshot)


def _add_requests(attempt: Attempt, found: Mapping[str, str], finished: FinishedLease, *, level: int) -> None:
    """Add requests for these assets (URL and kind) to a result, in batches of one domain."""
    context, lease = attempt.context, attempt.lease
    scope = context.deny_scope
    urls = [url for url in found if scope.reason(url) is None]
    fingerprints = [fingerprint(url, seed=context.asset_seed) for url in urls]
    referrer = attempt.url[:_MAX_REFERRER_CHARACTERS]
    packed: dict[str, bytes | None] = {}  # payload by kind
    batches: dict[str, Batch] = {}  # by domain
    payloads: dict[str, list[bytes | None]] = {}  # by domain: the list that the batch of this domain holds
    sent: list[int] = []
    for at in context.unseen_assets(fingerprints):
        url, kind = urls[at], found[urls[at]]
        if kind not in packed:
            packed[kind] = pack(Payload(asset=Asset(kind=kind, referrer=referrer, level=level)))
        domain = registered_domain(host(url))
        batch = batches.get(domain)
        if batch is None:
            payloads[domain] = []
            # The page's own priority, so that its assets do not wait for all pages that it links to.
            batch = batches[domain] = Batch(
                ASSET_SPIDER, domain, lease.priority, lease.depth + 1, payloads=payloads[domain]
            )
        batch.urls.append(url)
        batch.fingerprints.append(fingerprints[at])
        payloads[domain].append(packed[kind])
        sent.append(fingerprints[at])
    if sent:
        finished.batches = [*finished.batches, *batches.values()]
        finished.on_links_added = _confirm_callback(context, sent, finished.on_links_added)


def _confirm_callback(context: Context, sent: list[int], before: LinksAddedCallback | None) -> LinksAddedCallback:
    """Return a callback that remembers assets once the frontier has them, after it has called `before`. The data epoch
    must be read now, before they are sent."""
    since = context.data_epoch

    def confirm(rejected: Collection[int]) -> None:
        if before:
            before(rejected)
        context.confirm_assets(sent, rejected, since=since)

    return confirm
