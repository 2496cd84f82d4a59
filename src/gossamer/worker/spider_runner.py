"""Runs spiders that have a method `parse` of their own on pages, and takes the items and links that they find.

A page belongs to a lease: a request that the frontier (the cluster's store of requests) has handed to this worker.
Links become batches: requests of one domain that the worker adds to the frontier. Fixed: the reasons for dropped links
and the reason `spider_error`, which the frontier or records keep.
"""

import contextlib
import logging

from gossamer.commit.outlinks import FinishedLease
from gossamer.errors import BadInput, BadUrl, FrontierUnavailable
from gossamer.extract.document import HtmlDocument
from gossamer.extract.page import Follow, Page
from gossamer.fetch.request import check_headers
from gossamer.frontier.valkey.identity import ValkeySpiderRegistry
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import Batch, DropReason, Outcome, Payload, pack, payload_size_error, spider_name_error
from gossamer.policy.priorities import child_priority
from gossamer.policy.urls import host, join, registered_domain
from gossamer.telemetry import logs as names
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.worker.attempt import Attempt
from gossamer.worker.drops import count_drop, drop_reason
from gossamer.worker.extraction import ITEM_BYTES
from gossamer.worker.page import batches_size
from gossamer.worker.parsing import BlockWatch, Found, home_of, places_of_error, record_text, run_parse, terminal_text
from gossamer.worker.records import EXCEPTION_CHARACTERS, PageText, item_record
from gossamer.worker.spider import Spider

log = logging.getLogger("gossamer.worker")

_MAX_UNKNOWN_SPIDERS = 20
"""Number of names of missing spiders that are reported. A limit is needed, because a spider may make up any number of
names."""
_MAX_BROKEN_PLACES = 100
"""Number of different lines of spiders whose errors are reported. A limit is needed, because the lines of a changing
program have no end."""
_SHOWN_CHARACTERS = 200
"""Characters of a link that an error shows. More make messages and records longer."""


class SpiderRunner:
    """Runs the spiders of one worker."""

    def __init__(self, tally: Tally, troubles: Troubles, spiders: ValkeySpiderRegistry) -> None:
        """`troubles`: the lasting conditions that the worker reports. `spiders`: the frontier's registry of the spiders
        that workers have."""
        self._tally = tally
        self._troubles = troubles
        self._spiders = spiders
        self._unknown: set[str] = set()
        """Names of the missing spiders that were reported."""
        self._broken: set[tuple[object, ...]] = set()
        """Places in the code of spiders whose errors were reported."""
        self._watch = BlockWatch(lambda message: troubles.report(names.SPIDER_BLOCKED, message))

    async def run(
        self, attempt: Attempt, finished: FinishedLease, document: HtmlDocument | None, decoded: PageText
    ) -> bool:
        """Pass a page to its spider, and add to `finished`, whose first output is the page's record, what the spider
        finds. Returns False if the spider failed, which fails the page. `document` None: the page is not HTML."""
        context, lease, output = attempt.context, attempt.lease, finished.outputs[0]
        assert isinstance(output.record, PageRecord)
        follows = context.follows_links_at(lease.depth)
        page = Page(
            output.record,
            output.body,
            decoded.text,
            document=document,
            priority=lease.priority,
            in_scope=lambda document: (
                context.extract_links(
                    document,
                    attempt.url,
                    encoding=decoded.encoding,
                    nofollow=context.asks_nofollow(page.record.header_pairs),
                ).urls
            ),
        )
        items: list[Output] = []
        batches: list[Batch] = []
        drops: dict[str, int] = {}

        async def take(found: Found) -> None:
            if isinstance(found, dict):
                items.append(Output(record=item_record(page.record, found)))
            elif not follows:
                count_drop(drops, DropReason.DEPTH)
            elif (batch := await self._follow(attempt, found, drops)) is not None:
                batches.append(batch)

        spider = context.spider
        page.opened = attempt.opened
        try:
            if attempt.page_error is not None:
                raise attempt.page_error
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
            count_drop(drops, DropReason.UNKNOWN_SPIDER)
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


def _batch_of(attempt: Attempt, follow: Follow, drops: dict[str, int], spiders: ValkeySpiderRegistry) -> Batch | None:
    """Return a spider's link as a batch of one; None: the scope refuses it, which is counted in `drops`.

    Raises BadInput for a link that is too large, or that has an invalid header or spider name.
    """
    context, lease = attempt.context, attempt.lease
    try:
        url = join(attempt.url, follow.url)
    except BadUrl as fault:
        count_drop(drops, drop_reason(fault.reason))
        return None
    reason = context.scope.reason(url)
    if reason is not None:
        count_drop(drops, drop_reason(reason))
        return None
    url = context.scope.cleaned(url)
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
    if context.is_endless(url, fingerprint):
        count_drop(drops, DropReason.PATTERN)
        return None
    priority = child_priority(lease.priority) if follow.priority is None else follow.priority
    domain = registered_domain(host(url))
    return Batch(
        spider, domain, priority, lease.depth + 1, [url], [fingerprint], [packed],
        unfiltered=follow.again,
        render=lease.terms.render if follow.render is None else follow.render,
    )  # fmt: skip
