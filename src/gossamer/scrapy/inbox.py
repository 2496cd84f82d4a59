"""Start requests, and others that no lease led to, on their way into the frontier: in batches, never blocking."""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable

from scrapy import Request, signals
from scrapy.crawler import Crawler

from gossamer.commit.retrier import Retrier
from gossamer.errors import CrawlRefused
from gossamer.frontier.base import AddResult, ClaimResult, Frontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch
from gossamer.scrapy.entries import FrontierEntry
from gossamer.scrapy.live import LiveRequests, append
from gossamer.scrapy.stored import Unstorable
from gossamer.worker.context import SeenCache

log = logging.getLogger(__name__)


_MOST = 1000
"""Entries of one call, and twice as many may wait here before the spider's start requests are held back."""


class Inbox:
    """Bounded for what `room` holds back; what callbacks of other components push comes on top."""

    def __init__(
        self,
        frontier: Frontier,
        retrier: Retrier,
        run: Run,
        terms: Terms,
        *,
        sift: Callable[[list[Batch]], Awaitable[list[Batch]]],
        added: Callable[[AddResult, list[Batch], int], None],
        refused: Callable[[int, CrawlRefused], None],
    ) -> None:
        """`sift` says what is to be added at all; `added` is told of every batch, with the
        frontier's era before it was sent; `refused` of what a stopped crawl did
        not take."""
        self._frontier = frontier
        self._retrier = retrier
        self._run = run
        self._terms = terms
        self._sift = sift
        self._added = added
        self._refused = refused
        self._waiting: dict[tuple[str, str, int, int, bool], Batch] = {}
        self._count = 0
        self._under_way = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def pending(self) -> int:
        """Entries that are not in the frontier yet."""
        return self._count + self._under_way

    def put(self, entry: FrontierEntry, *, unfiltered: bool) -> None:
        """Take it; it is in the frontier some milliseconds later."""
        key = (entry.spider, entry.domain, entry.priority, entry.depth, unfiltered)
        batch = self._waiting.get(key)
        if batch is None:
            batch = self._waiting[key] = Batch(*key[:4], payloads=[], unfiltered=unfiltered)
        append(batch, entry)
        self._count += 1
        self._work.set()
        self._quiet.clear()
        if self._count >= 2 * _MOST:
            self._room.clear()

    async def room(self) -> None:
        """Return when there is room for more."""
        await self._room.wait()

    async def drained(self) -> None:
        """Return when all of it is in the frontier."""
        await self._quiet.wait()

    async def run(self) -> None:
        """Bring it in, for ever; cancel it when `drained`."""
        while True:
            await self._work.wait()
            taken = self._take()
            batches = await self._retrier.call_frontier(lambda taken=taken: self._sift(taken))  # type: ignore[misc]
            era = self._frontier.era
            try:
                added = await self._retrier.call_frontier(
                    lambda batches=batches: self._frontier.add(self._run, self._terms, batches, seeds=True)  # type: ignore[misc]
                )
            except CrawlRefused as error:
                self._refused(self._under_way, error)
            else:
                self._added(added, batches, era)
            self._under_way = 0
            if not self._count:
                self._quiet.set()

    def _take(self) -> list[Batch]:
        batches = list(self._waiting.values())
        self._waiting = {}
        self._under_way, self._count = self._count, 0
        self._work.clear()
        self._room.set()
        return batches


_TOLD = 20
"""Of a kind that fails always a person needs no more examples."""
_PART = "local"


class LocalRequests:
    """The lease that led to one waits for it, so that a process that dies before it is done fetches the parent again,
    and so comes to it once more."""

    def __init__(self, crawler: Crawler, seen: SeenCache) -> None:
        self._crawler = crawler
        self._seen = seen
        self._waiting: deque[tuple[Request, LiveRequests | None]] = deque()
        self._running: dict[Request, LiveRequests | None] = {}
        self._told = 0

    @property
    def waiting(self) -> bool:
        """Whether there is one to begin."""
        return bool(self._waiting)

    @property
    def pending(self) -> bool:
        """Whether any is not done yet."""
        return bool(self._waiting or self._running)

    def keep(self, request: Request, parent: LiveRequests | None, why: Unstorable, *, filtered: bool) -> bool:
        """Take it. False: `filtered`, and this process had it before."""
        if self._told < _TOLD:
            self._told += 1
            log.warning("%s is kept in this process: %s", request, why)
        if filtered:
            mark = hash(self._crawler.request_fingerprinter.fingerprint(request))
            part = (_PART, parent.part if parent is not None else None)
            if self._seen.has_seen(part, mark):
                return False
            self._seen.remember(part, (mark,))
        if parent is not None:
            parent.local += 1
        self._waiting.append((request, parent))
        return True

    def begin(self) -> tuple[Request, LiveRequests | None]:
        """The next, and the lease that led to it."""
        request, parent = self._waiting.popleft()
        self._running[request] = parent
        return request, parent

    def runs(self, request: Request) -> bool:
        """Whether it is one that was begun here."""
        return request in self._running

    def parent_of(self, request: Request) -> LiveRequests | None:
        """The lease that led to it, if it runs here and one did."""
        return self._running.get(request)

    def end(self, request: Request) -> LiveRequests | None:
        """It is done; the lease that led to it, which waits for one less."""
        parent = self._running.pop(request)
        if parent is not None:
            parent.local -= 1
        return parent


_ASK_SECONDS = 0.5
_REPEAT_SECONDS = 5.0


class StartOnce:
    """Decides for one process which items of `start()`, and which start requests that cannot be stored, are its own.

    Items are told apart by their place among the items of `start()`, which is the same in every process. A process
    claims one before it is handled, and notes when it is done. What a process that died had claimed, another one that
    waits for it, or starts later, claims after 20 s.
    """

    def __init__(self, frontier: Frontier, retrier: Retrier, run: Run, crawler: Crawler) -> None:
        self._frontier = frontier
        self._retrier = retrier
        self._run = run
        self._crawler = crawler
        self._name = secrets.token_hex(8)
        self._count = 0
        self._claimed: set[str] = set()
        """By this process, ever: a second start request of one fingerprint is a duplicate."""
        self._doing: set[str] = set()
        self._items: list[str] = []
        self._items_under_way = 0
        self._requests: dict[Request, str] = {}
        self._done: list[str] = []
        for signal in (signals.item_scraped, signals.item_dropped, signals.item_error):
            crawler.signals.connect(self._item_ended, signal=signal)

    async def wants_item(self) -> bool:
        """Return whether the next item of `start()` is this process's."""
        name = f"item {self._count}"
        self._count += 1
        if not await self._claims(name):
            return False
        self._items.append(name)
        self._items_under_way += 1
        return True

    async def wants_request(self, request: Request) -> bool:
        """Return whether this start request, which cannot be stored, is this process's. Tell `request_ended`."""
        fingerprinter = self._crawler.request_fingerprinter
        assert fingerprinter is not None
        name = fingerprinter.fingerprint(request).hex()
        if name in self._claimed or not await self._claims(name):
            return False
        self._requests[request] = name
        return True

    def request_ended(self, request: Request) -> None:
        """Note that a request is done, if it is one of those."""
        if (name := self._requests.pop(request, None)) is not None:
            self._done.append(name)

    def _item_ended(self, response: object = None) -> None:
        if response is None and self._items_under_way:
            self._items_under_way -= 1
            if not self._items_under_way:
                self._done += self._items
                self._items = []

    async def _claims(self, name: str) -> bool:
        if not self._run.number:
            return True  # a process of the service, whose requests belong to many crawls
        self._claimed.add(name)
        while True:
            [answer] = await self._call(lambda: self._frontier.claim(self._run, [name], owner=self._name))
            if answer is not ClaimResult.HELD_BY_OTHER:
                if answer is ClaimResult.GRANTED:
                    self._doing.add(name)
                return answer is ClaimResult.GRANTED
            await asyncio.sleep(_ASK_SECONDS)

    async def run(self) -> None:
        """Repeat the claims, and note what is done, until it is cancelled."""
        while True:
            await asyncio.sleep(_REPEAT_SECONDS)
            await self.note_done()
            if self._doing:
                await self._call(lambda: self._frontier.claim(self._run, sorted(self._doing), owner=self._name))

    async def note_done(self) -> None:
        """Note what is done by now."""
        done = [name for name in self._done if name in self._doing]
        if done:
            await self._call(lambda: self._frontier.claim(self._run, done, owner=""))
            self._doing.difference_update(done)
        self._done = [name for name in self._done if name not in done and name in self._doing]

    async def _call(self, call: Callable[[], Awaitable[list[ClaimResult]]]) -> list[ClaimResult]:
        return await self._retrier.call_frontier(call)
