"""Brings start messages into the frontier as they come, whatever else the spider is doing."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scrapy import Request
from scrapy.crawler import Crawler

from gossamer.commit.patience import Patience
from gossamer.errors import BadInput
from gossamer.scrapy.engine import EngineDoor
from gossamer.scrapy.redis.startkeys import LEASE_SECONDS, StartKey, Taken
from gossamer.scrapy.scheduler import Scheduler
from gossamer.telemetry.troubles import Troubles

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
"""An empty key is looked at so often. Sets and sorted sets cannot be waited for, and this costs next to nothing."""


class Feeder:
    """A message leaves its key for the processing key, and that only when its requests are in the frontier: a process
    that dies in between loses none, and what it took comes again. Bad ones are buried, their neighbours are not."""

    def __init__(
        self,
        crawler: Crawler,
        keys: Sequence[StartKey],
        *,
        most: int,
        make: Callable[[bytes], Any],
        worked: Callable[[], None],
    ) -> None:
        """`most` messages at once, of the first key that has any; `make`: the spider's requests for a message; `worked`
        is told when there was something to do."""
        self._engine = EngineDoor(crawler.engine)
        self._keys = keys
        self._most = most
        self._make = make
        self._worked = worked
        self._patience = Patience(Troubles())
        assert crawler.engine is not None
        assert crawler.stats is not None
        self._crawl = crawler.engine.crawl
        self._stats = crawler.stats

    async def run(self) -> None:
        """Until it is cancelled, or the spider closes, or there is nothing that could be read."""
        scheduler = self._engine.scheduler
        if not isinstance(scheduler, Scheduler):
            keys = ", ".join(key.key for key in self._keys)
            log.critical("SCHEDULER is not gossamer.scrapy.redis.scheduler.Scheduler: nothing is read from %s", keys)
            return
        try:
            while not scheduler.closing:
                if not await self._round(scheduler):
                    if scheduler.has_pending_requests():
                        self._worked()
                    await asyncio.sleep(LOOK_SECONDS)
        except BadInput as error:
            log.critical("%s. Nothing is read from it", error)

    async def _round(self, scheduler: Scheduler) -> bool:
        """Feed one batch. False: there is none, or it is not wanted now."""
        if scheduler.stopped:
            return False
        for key in self._keys:
            taken = await self._patience.frontier(lambda key=key: key.take(self._most))  # type: ignore[misc]
            if taken:
                self._worked()
                return await self._feed(scheduler, key, taken)
        return False

    async def _feed(self, scheduler: Scheduler, key: StartKey, taken: Sequence[Taken]) -> bool:
        good: list[Taken] = []
        requests: list[Request] = []
        for one in taken:
            try:
                made = _requests(self._make(one.message))
            except Exception as fault:
                reason = fault.detail if isinstance(fault, BadInput) else f"{type(fault).__name__}: {fault}"
                log.error("A message of %s goes to %s: %s", key.key, key.dead, reason)
                self._stats.inc_value("gossamer/start_messages/dead")
                await self._patience.frontier(lambda one=one, reason=reason: key.bury(one, reason))  # type: ignore[misc]
                continue
            if not made:
                log.debug("Request not made from data: %r", one.message)
            requests += made
            good.append(one)
        if not scheduler.closing:
            for request in requests:
                self._crawl(request)
            if await self._stored(scheduler, key, good):
                self._stats.inc_value("gossamer/start_messages", len(good))
                await self._patience.frontier(lambda: key.done(good))
                return True
        if good:
            await self._patience.frontier(lambda: key.give_back(good))
        return False

    async def _stored(self, scheduler: Scheduler, key: StartKey, taken: Sequence[Taken]) -> bool:
        stored = asyncio.ensure_future(scheduler.stored())
        try:
            last = time.monotonic()
            while not stored.done():
                await asyncio.wait([stored], timeout=LEASE_SECONDS / 3)
                if not stored.done() and time.monotonic() - last >= LEASE_SECONDS / 4:
                    last = time.monotonic()
                    await self._patience.frontier(lambda: key.keep(taken))
            return stored.result()
        finally:
            stored.cancel()


def _requests(made: Any) -> list[Request]:
    if made is None:
        return []
    found = list(made) if isinstance(made, Iterable) else [made]
    for one in found:
        if not isinstance(one, Request):
            raise BadInput(f"make_request_from_data gave {one!r}, which is no Request")
    return found
