"""Start of a crawl in one process: joining its run, and bringing start requests and start items in once.

All processes of a crawl share one frontier: the queue of requests and the memory of those seen. A run is one life of
the crawl, from its first request until nothing is left.

Fixed: the names of claims, which are stored in the frontier; and that `StartClaims` reports an item only after its
pipelines are through, or a killed process loses it.
"""

import asyncio
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from scrapy import Request, signals
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.errors import CrawlRefused, FrontierUnavailable
from gossamer.frontier.base import AddResult, ClaimResult, RunFinished
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlState, Run, Terms
from gossamer.model.request import Batch
from gossamer.scrapy.entries import BatchKey, FrontierEntry, add_to_batch

T = TypeVar("T")

_CONNECT_SECONDS = 30.0
"""Longest time that a starting process waits for a frontier that does not answer. Longer outlasts longer outages,
shorter reports a wrong address sooner."""


async def wait_for_frontier(retrier: Retrier, call: Callable[[], Awaitable[T]]) -> T:
    """Return the answer of a call to the frontier, repeated during a short outage.

    Raises FrontierUnavailable after `_CONNECT_SECONDS` without an answer.
    """
    failure = FrontierUnavailable(f"it did not answer within {_CONNECT_SECONDS:g} s")

    async def attempt() -> T:
        nonlocal failure
        try:
            return await call()
        except FrontierUnavailable as error:
            failure = error
            raise

    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            return await retrier.call_frontier(attempt)
    except TimeoutError:
        raise failure from None


# --- joining a run ----------------------------------------------------------------------------------------------------

_LOADED = time.monotonic()
"""Monotonic time at which this module was imported."""
_last_crawl_end = float("-inf")
"""Monotonic time at which this process's last crawl ended; -inf before the first end."""
_GROUP_START = "GOSSAMER_GROUP_START"
"""Environment variable with the Unix time at which the first job of this job's group was started. Fixed: the platform
writes it, which may be of another version."""
_START_TIME_FIELD = 19
"""Position of `starttime` (in clock ticks) after the process's name in /proc/<pid>/stat. Linux's: fixed."""


async def join(frontier: ValkeyFrontier, crawl: Crawl, *, fresh: bool) -> Run:
    """Return the run that this process works on, with this project's requested rate and concurrency.

    `fresh`: the run after a finished one has seen nothing. Processes that were started together are one run, however
    long each takes to load: if the run has finished since this process was started, this process joins the finished
    run, where its start requests are duplicates, and begins no new one. Raises CrawlRefused for a crawl that was
    stopped or has expired.
    """
    try:
        run = await _open_run(frontier, crawl, fresh=fresh)
    except RunFinished as finished:
        return finished.run
    if (run.crawl.rate, run.crawl.concurrency) != (crawl.rate, crawl.concurrency):
        run = await frontier.set_crawl_limits(run, rate=crawl.rate, concurrency=crawl.concurrency)
    return run


async def _open_run(frontier: ValkeyFrontier, crawl: Crawl, *, fresh: bool) -> Run:
    """Open the crawl's run. Raises RunFinished for a run that belongs to this process and has finished already."""
    if not fresh:
        return await frontier.open_crawl(crawl, process_age_seconds=process_age_seconds())
    while True:
        try:
            return await frontier.open_crawl(crawl, fresh=True, process_age_seconds=process_age_seconds())
        except CrawlRefused:
            info = await frontier.crawl_info(crawl.id)
            if info is not None and info.state not in (CrawlState.RUNNING, CrawlState.FINISHED):
                raise  # it was stopped or has expired
        # Another process has begun the run, or an earlier run is not finished: join that one. If it has finished since,
        # the loop begins the next run.
        if info is not None and info.state is CrawlState.RUNNING:
            return await frontier.open_crawl(crawl, process_age_seconds=process_age_seconds())


def process_age_seconds() -> float:
    """Return the seconds since this process was started, or since its last crawl ended.

    A program may crawl several times in one process; each crawl counts as started when the one before it ended. A job
    of a group that shares a crawl counts as started with the first job of the group.
    """
    now = time.monotonic()
    group_start = os.environ.get(_GROUP_START)
    group_age = time.time() - float(group_start) if group_start else 0.0
    return min(max(_system_age_seconds(), now - _LOADED, group_age), now - _last_crawl_end)


def on_crawl_end() -> None:
    """Record that a crawl of this process has ended."""
    global _last_crawl_end
    _last_crawl_end = time.monotonic()


def _system_age_seconds() -> float:
    """Return the seconds since the process was started; 0 where the system has no /proc."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        started_at = int(fields[_START_TIME_FIELD]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started_at
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0


# --- start requests and start items -----------------------------------------------------------------------------------

_MAX_WAITING = 2000
"""Number of waiting entries at which the spider's `start()` is held back. More need memory, fewer make smaller
batches."""


class Inbox:
    """Adds start requests, and others that no lease led to, to the frontier: in batches, without blocking the engine.

    `wait_for_room` bounds the start requests that wait here; requests that other components schedule are not bounded.
    Requests that wait here are lost if the process dies; the spider's next start yields its start requests again.
    """

    def __init__(
        self,
        frontier: ValkeyFrontier,
        retrier: Retrier,
        run: Run,
        terms: Terms,
        *,
        filter_batches: Callable[[list[Batch]], Awaitable[list[Batch]]],
        on_added: Callable[[AddResult, list[Batch], int], None],
        on_refused: Callable[[int, CrawlRefused], None],
        newest_count: int,
    ) -> None:
        """Create an inbox; `run` does the work.

        `filter_batches` returns the batches without requests that need not be added, such as those that an earlier
        system has seen. `on_added` gets the result, the batches, and the frontier's data
        epoch before they were sent (a number that changes when the frontier may have lost confirmed data). `on_refused`
        gets the number of requests that a stopped crawl refused. `newest_count` is the number of entries that
        `newest_waits` looks for.
        """
        self._frontier = frontier
        self._retrier = retrier
        self._run = run
        self._terms = terms
        self._filter_batches = filter_batches
        self._on_added = on_added
        self._on_refused = on_refused
        self._waiting: dict[BatchKey, Batch] = {}
        self._newest: deque[FrontierEntry] = deque(maxlen=newest_count)
        """Newest entries, which may wait in the frontier."""
        self._waiting_count = 0
        self._sending_count = 0
        """Number of entries in the call to the frontier that is under way."""
        self._has_work = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    @property
    def pending(self) -> int:
        """Number of entries that are not in the frontier yet."""
        return self._waiting_count + self._sending_count

    def put(self, entry: FrontierEntry, *, unfiltered: bool) -> None:
        """Accept an entry. It is in the frontier some milliseconds later."""
        add_to_batch(self._waiting, entry, unfiltered=unfiltered)
        self._newest.append(entry)
        self._waiting_count += 1
        self._has_work.set()
        self._is_empty.clear()
        if self._waiting_count >= _MAX_WAITING:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        """Return when there is room for more start requests."""
        await self._has_room.wait()

    async def drained(self) -> None:
        """Return when all entries are in the frontier."""
        await self._is_empty.wait()

    async def newest_waits(self) -> bool:
        """Return whether one of the newest entries waits in the frontier's queue: no process has leased it."""
        while self._newest:
            entry = self._newest[-1]
            found = await self._retrier.call_frontier(
                lambda entry=entry: self._frontier.find_url(  # type: ignore[misc]
                    self._run, spider=entry.spider, domain=entry.domain, url=entry.url, fingerprint=entry.fingerprint
                )
            )
            if found.place == "queued":
                return True
            self._newest.pop()
        return False

    async def run(self) -> None:
        """Add entries until the task is cancelled."""
        while True:
            await self._has_work.wait()
            taken = self._take()
            batches = await self._retrier.call_frontier(lambda taken=taken: self._filter_batches(taken))  # type: ignore[misc]
            # Read before the call: if the frontier loses data during it, its answer must not be remembered.
            data_epoch = self._frontier.data_epoch
            try:
                added = await self._retrier.call_frontier(
                    lambda batches=batches: self._frontier.add(self._run, self._terms, batches, seeds=True)  # type: ignore[misc]
                )
            except CrawlRefused as error:
                self._on_refused(self._sending_count, error)
            else:
                self._on_added(added, batches, data_epoch)
            self._sending_count = 0
            if not self._waiting_count:
                self._is_empty.set()

    def _take(self) -> list[Batch]:
        """Return all waiting entries, which are under way from now on."""
        batches = list(self._waiting.values())
        self._waiting = {}
        self._sending_count, self._waiting_count = self._waiting_count, 0
        self._has_work.clear()
        self._has_room.set()
        return batches


_POLL_SECONDS = 0.5
"""Seconds between two attempts to claim what another process holds. Shorter costs calls, longer delays the start of a
process that waits."""
_RENEW_SECONDS = 5.0
"""Seconds between two renewals of this process's claims. May be shorter, which costs calls. Must stay well below the
20 s (`_CLAIM_MS` in frontier/valkey/frontier.py) after which the frontier gives a claim to another process, or two
processes handle the same item."""


class StartClaims:
    """Decides which process handles the items of `start()`, and the start requests that cannot be stored.

    A process claims an item or a request before it handles it, and reports when it is done. When a process dies,
    another process that waits for the claim, or starts later, gets it after 20 s. Items are identified by their
    position among the items of `start()`, which must therefore be the same in every process.

    The names of claims are stored in the frontier, `item 0` or the hexadecimal fingerprint of a request. They must not
    change: a process of another version would handle the same item again.
    """

    def __init__(self, frontier: ValkeyFrontier, retrier: Retrier, run: Run, crawler: Crawler) -> None:
        self._frontier = frontier
        self._retrier = retrier
        self._run = run
        self._crawler = crawler
        self._owner = secrets.token_hex(8)
        """This process's name among the owners of claims."""
        self._item_count = 0
        """Number of items that `start()` has yielded."""
        self._tried: set[str] = set()
        """Names that this process ever tried to claim: a second start request of one fingerprint is a duplicate."""
        self._held: set[str] = set()
        """Names that this process has claimed and not yet reported as done."""
        self._items: list[str] = []
        """Names of the claimed items; all are done when none of them is under way."""
        self._items_under_way = 0
        self._requests: dict[Request, str] = {}
        """Names of the claimed requests that have not ended."""
        self._done: list[str] = []
        """Names to report as done."""
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            crawler.signals.connect(self._on_item_end, signal=signal)

    async def claim_item(self) -> bool:
        """Return whether this process handles the next item of `start()`."""
        name = f"item {self._item_count}"
        self._item_count += 1
        if not await self._claim(name):
            return False
        self._items.append(name)
        self._items_under_way += 1
        return True

    async def claim_request(self, request: Request) -> bool:
        """Return whether this process handles a start request that cannot be stored. If so, call `on_request_end`."""
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        name = fingerprinter.fingerprint(request).hex()
        if name in self._tried or not await self._claim(name):
            return False
        self._requests[request] = name
        return True

    def on_request_end(self, request: Request) -> None:
        """Record the end of a claimed request. Other requests are ignored."""
        if (name := self._requests.pop(request, None)) is not None:
            self._done.append(name)

    def _on_item_end(self, response: object = None) -> None:
        """Note that the pipelines are through with an item."""
        # Only items of `start()` have no response. Scrapy may finish them in any order, so they are done together.
        if response is None and self._items_under_way:
            self._items_under_way -= 1
            if not self._items_under_way:
                self._done += self._items
                self._items = []

    async def _claim(self, name: str) -> bool:
        """Return whether this process got the claim; wait while another process holds it."""
        if not self._run.number:
            return True  # a ClusterSpider: its process belongs to no run
        self._tried.add(name)
        while True:
            [answer] = await self._call(lambda: self._frontier.claim(self._run, [name], owner=self._owner))
            if answer is ClaimResult.GRANTED:
                self._held.add(name)
                return True
            if answer is not ClaimResult.HELD_BY_OTHER:  # another process has reported it as done
                return False
            await asyncio.sleep(_POLL_SECONDS)

    async def run(self) -> None:
        """Renew the claims, and report what is done, until the task is cancelled."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            await self.report_done()
            if self._held:
                await self._call(lambda: self._frontier.claim(self._run, sorted(self._held), owner=self._owner))

    async def report_done(self) -> None:
        """Report to the frontier what is done by now."""
        done = [name for name in self._done if name in self._held]
        if done:
            # An empty owner stands for "done": no process gets the claim any more.
            await self._call(lambda: self._frontier.claim(self._run, done, owner=""))
            self._held.difference_update(done)
        # What was added to `_done` during the call stays for the next one.
        self._done = [name for name in self._done if name in self._held]

    async def _call(self, call: Callable[[], Awaitable[list[ClaimResult]]]) -> list[ClaimResult]:
        """Make a call to the frontier, and repeat it during an outage."""
        return await self._retrier.call_frontier(call)
