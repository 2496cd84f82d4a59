"""Requests that cannot be stored: run in the process that made them, as Scrapy does with what it cannot put on disk."""

import logging
from collections import deque

from scrapy import Request
from scrapy.crawler import Crawler

from gossamer.scrapy.live import Live
from gossamer.scrapy.stored import Unstorable
from gossamer.worker.seen_cache import SeenCache

log = logging.getLogger(__name__)

_TOLD = 20
"""Of a kind that fails always a person needs no more examples."""
_PART = "local"


class LocalRequests:
    """The lease that led to one waits for it, so that a process that dies before it is done fetches the parent again,
    and so comes to it once more."""

    def __init__(self, crawler: Crawler, seen: SeenCache) -> None:
        self._crawler = crawler
        self._seen = seen
        self._waiting: deque[tuple[Request, Live | None]] = deque()
        self._running: dict[Request, Live | None] = {}
        self._told = 0

    @property
    def waiting(self) -> bool:
        """Whether there is one to begin."""
        return bool(self._waiting)

    @property
    def pending(self) -> bool:
        """Whether any is not done yet."""
        return bool(self._waiting or self._running)

    def keep(self, request: Request, parent: Live | None, why: Unstorable, *, filtered: bool) -> bool:
        """Take it. False: `filtered`, and this process had it before."""
        if self._told < _TOLD:
            self._told += 1
            log.warning("%s is kept in this process: %s", request, why)
        if filtered:
            mark = hash(self._crawler.request_fingerprinter.fingerprint(request))
            part = (_PART, parent.part if parent is not None else None)
            if self._seen.knows(part, mark):
                return False
            self._seen.remember(part, (mark,))
        if parent is not None:
            parent.local += 1
        self._waiting.append((request, parent))
        return True

    def begin(self) -> tuple[Request, Live | None]:
        """The next, and the lease that led to it."""
        request, parent = self._waiting.popleft()
        self._running[request] = parent
        return request, parent

    def runs(self, request: Request) -> bool:
        """Whether it is one that was begun here."""
        return request in self._running

    def parent_of(self, request: Request) -> Live | None:
        """The lease that led to it, if it runs here and one did."""
        return self._running.get(request)

    def end(self, request: Request) -> Live | None:
        """It is done; the lease that led to it, which waits for one less."""
        parent = self._running.pop(request)
        if parent is not None:
            parent.local -= 1
        return parent
