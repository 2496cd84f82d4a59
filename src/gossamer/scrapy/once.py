"""What `start()` yields and the frontier cannot keep apart: it comes once a crawl, not once a process."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from scrapy import Request, signals
from scrapy.crawler import Crawler

from gossamer.commit.patience import Patience
from gossamer.frontier.base import Claim, Frontier
from gossamer.model.crawl import Run

_ASK_SECONDS = 0.5
_REPEAT_SECONDS = 5.0


class StartOnce:
    """Decides for one process which items of `start()`, and which start requests that cannot be stored, are its own.

    Items are told apart by their place among the items of `start()`, which is the same in every process. A process
    claims one before it is handled, and notes when it is done. What a process that died had claimed, another one that
    waits for it, or starts later, claims after 20 s.
    """

    def __init__(self, frontier: Frontier, patience: Patience, run: Run, crawler: Crawler) -> None:
        self._frontier = frontier
        self._patience = patience
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
            [answer] = await self._call(lambda: self._frontier.claim(self._run, [name], by=self._name))
            if answer is not Claim.HELD:
                if answer is Claim.OURS:
                    self._doing.add(name)
                return answer is Claim.OURS
            await asyncio.sleep(_ASK_SECONDS)

    async def run(self) -> None:
        """Repeat the claims, and note what is done, until it is cancelled."""
        while True:
            await asyncio.sleep(_REPEAT_SECONDS)
            await self.note_done()
            if self._doing:
                await self._call(lambda: self._frontier.claim(self._run, sorted(self._doing), by=self._name))

    async def note_done(self) -> None:
        """Note what is done by now."""
        done = [name for name in self._done if name in self._doing]
        if done:
            await self._call(lambda: self._frontier.claim(self._run, done, by=""))
            self._doing.difference_update(done)
        self._done = [name for name in self._done if name not in done and name in self._doing]

    async def _call(self, call: Callable[[], Awaitable[list[Claim]]]) -> list[Claim]:
        return await self._patience.frontier(call)
