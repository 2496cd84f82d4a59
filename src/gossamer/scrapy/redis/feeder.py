"""Brings start messages into the frontier as they come, whatever else the spider is doing."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _Batch:
    """Messages and the requests made of them."""

    messages: list[tuple[StartKey, Taken]] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)

    def by_key(self) -> list[tuple[StartKey, list[Taken]]]:
        groups: dict[str, tuple[StartKey, list[Taken]]] = {}
        for key, one in self.messages:
            groups.setdefault(key.key, (key, []))[1].append(one)
        return list(groups.values())


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
        own: Callable[[], Iterable[Any]] | None = None,
    ) -> None:
        """`most` messages at once, of the first key that has any; `make`: the spider's requests for a message; `worked`
        is told when there was something to do. `own`: a `next_requests` of the project's; it is called in a thread."""
        self._engine = EngineDoor(crawler.engine)
        self._keys = keys
        self._most = most
        self._make = make
        self._worked = worked
        self._own = own
        self._loop = asyncio.get_running_loop()
        self._fetched: list[tuple[StartKey, Taken]] = []
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
        batch = await (self._made() if self._own is None else self._own_made(self._own))
        if not (batch.messages or batch.requests):
            return False
        self._worked()
        if not scheduler.closing:
            for request in batch.requests:
                self._crawl(request)
            if await self._stored(scheduler, batch):
                self._stats.inc_value("gossamer/start_messages", len(batch.messages))
                for key, taken in batch.by_key():
                    await self._patience.frontier(lambda key=key, taken=taken: key.done(taken))  # type: ignore[misc]
                return True
        for key, taken in batch.by_key():
            await self._patience.frontier(lambda key=key, taken=taken: key.give_back(taken))  # type: ignore[misc]
        return False

    # --- from messages to requests ------------------------------------------------------------------------------------

    async def _made(self) -> _Batch:
        batch = _Batch()
        for key, one in await self._take(self._keys, self._most):
            try:
                made = requests_of(self._make(one.message))
            except Exception as fault:
                await self._bury(key, one, fault)
                continue
            if not made:
                log.debug("Request not made from data: %r", one.message)
            batch.requests += made
            batch.messages.append((key, one))
        return batch

    async def _own_made(self, own: Callable[[], Iterable[Any]]) -> _Batch:
        """What the project's `next_requests` gives. It may block, so it runs in a thread."""
        self._fetched = []
        try:
            requests = await asyncio.to_thread(lambda: requests_of(list(own())))
        except Exception as fault:
            for key, one in self._fetched:
                await self._bury(key, one, fault)
            if not self._fetched:
                log.exception("next_requests failed")
            return _Batch()
        return _Batch(self._fetched, requests)

    def fetch(self, names: Sequence[str], most: int) -> list[bytes]:
        """Return messages of the first of these keys that has any. Only for the thread in which `own` runs."""
        if threading.current_thread() is threading.main_thread():
            raise RuntimeError("fetch_data is called by next_requests, which Gossamer calls; do not call it yourself")
        keys = [key for key in self._keys if key.key in names]
        taken = asyncio.run_coroutine_threadsafe(self._take(keys, most), self._loop).result()
        self._fetched += taken
        return [one.message for _, one in taken]

    def bury(self, message: bytes, fault: Exception) -> None:
        """Put a message that `fetch` returned among the dead letters. Only for that thread."""
        at = next(at for at, (_, one) in enumerate(self._fetched) if one.message == message)
        key, one = self._fetched.pop(at)
        asyncio.run_coroutine_threadsafe(self._bury(key, one, fault), self._loop).result()

    async def _take(self, keys: Sequence[StartKey], most: int) -> list[tuple[StartKey, Taken]]:
        for key in keys:
            taken = await self._patience.frontier(lambda key=key: key.take(most))  # type: ignore[misc]
            if taken:
                return [(key, one) for one in taken]
        return []

    async def _bury(self, key: StartKey, one: Taken, fault: Exception) -> None:
        reason = fault.detail if isinstance(fault, BadInput) else f"{type(fault).__name__}: {fault}"
        log.error("A message of %s goes to %s: %s", key.key, key.dead, reason)
        self._stats.inc_value("gossamer/start_messages/dead")
        await self._patience.frontier(lambda: key.bury(one, reason))

    async def _stored(self, scheduler: Scheduler, batch: _Batch) -> bool:
        stored = asyncio.ensure_future(scheduler.stored())
        try:
            last = time.monotonic()
            while not stored.done():
                await asyncio.wait([stored], timeout=LEASE_SECONDS / 3)
                if not stored.done() and time.monotonic() - last >= LEASE_SECONDS / 4:
                    last = time.monotonic()
                    for key, taken in batch.by_key():
                        await self._patience.frontier(lambda key=key, taken=taken: key.keep(taken))  # type: ignore[misc]
            return stored.result()
        finally:
            stored.cancel()


def requests_of(made: Any) -> list[Request]:
    """Return what a message led to as a list. Raises BadInput for anything that is no request."""
    if made is None:
        return []
    found = list(made) if isinstance(made, Iterable) else [made]
    for one in found:
        if not isinstance(one, Request):
            raise BadInput(f"make_request_from_data gave {one!r}, which is no Request")
    return found
