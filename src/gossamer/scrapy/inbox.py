"""Start requests, and others that no lease led to, on their way into the frontier: in batches, never blocking."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gossamer.commit.patience import Patience
from gossamer.errors import CrawlRefused
from gossamer.frontier.base import Added, Frontier
from gossamer.model.crawl import Run, Terms
from gossamer.model.request import Batch
from gossamer.scrapy.entries import Entry
from gossamer.scrapy.live import append

log = logging.getLogger(__name__)

_MOST = 1000
"""Entries of one call, and twice as many may wait here before the spider's start requests are held back."""


class Inbox:
    """Bounded for what `room` holds back; what callbacks of other components push comes on top."""

    def __init__(
        self,
        frontier: Frontier,
        patience: Patience,
        run: Run,
        terms: Terms,
        *,
        sift: Callable[[list[Batch]], Awaitable[list[Batch]]],
        added: Callable[[Added, list[Batch], int], None],
        refused: Callable[[int, CrawlRefused], None],
    ) -> None:
        """`sift` says what is to be added at all; `added` is told of every batch, with the
        frontier's era before it was sent; `refused` of what a stopped crawl did
        not take."""
        self._frontier = frontier
        self._patience = patience
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

    def put(self, entry: Entry, *, unfiltered: bool) -> None:
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
            batches = await self._patience.frontier(lambda taken=taken: self._sift(taken))  # type: ignore[misc]
            era = self._frontier.era
            try:
                added = await self._patience.frontier(
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
