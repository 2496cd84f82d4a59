"""From the bus into the frontier: crawl requests in batches, every other request answered, what is wrong said."""

import asyncio
import base64
import contextlib
import hashlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gossamer.bus.base import Bus, Consumer, Message, Topics
from gossamer.control import stats
from gossamer.control.admission import DUPLICATE, AdmittedRequest
from gossamer.control.dispatcher import CRAWL, RequestDispatcher
from gossamer.control.stats import Counters
from gossamer.errors import BusError, FrontierError, RequestRejected
from gossamer.model.messages import answers
from gossamer.services.reporter import OutboundPublisher
from gossamer.telemetry import logs as names
from gossamer.telemetry.metrics import Metrics

log = logging.getLogger("gossamer.services.intake")

_WAIT_SECONDS = 1.0
_MEASURE_SECONDS = 15.0
_HANDLER_SECONDS = 30.0
"""A request's handler that takes longer is given up, and the request is refused: others wait behind it."""


@dataclass(slots=True)
class _Item:
    """One message on its way through."""

    message: Message
    kind: str = ""
    request: Any = None
    fault: RequestRejected | None = None
    done: bool = False
    """It is in the frontier, or its answers are known."""
    out: list[dict[str, Any]] = field(default_factory=list)


class Intake:
    """Implements Role. A batch is acknowledged when every request of it is in the frontier or answered durably; a
    batch that fails on the way is gone on with where it stopped."""

    name = "intake"
    pause_seconds = 0.0

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        desk: RequestDispatcher,
        outbound: OutboundPublisher,
        counters: Counters,
        metrics: Metrics,
        *,
        group: str,
        batch: int = 1000,
    ) -> None:
        """`group`: of consumers; all intakes of a cluster are in one. `batch`: messages taken at once."""
        self._bus = bus
        self._topics = topics
        self._desk = desk
        self._outbound = outbound
        self._counters = counters
        self._metrics = metrics
        self._group = group
        self._batch = batch
        self._consumer: Consumer | None = None
        self._items: list[_Item] = []
        self._next: list[_Item] = []
        """Taken and read while the batch before was on its way."""
        self._measured = float("-inf")
        self._again = False
        """The batch was begun before: what it finds known may be its own doing."""

    async def run_once(self) -> bool:
        if self._consumer is None:
            self._consumer = await self._bus.consume(self._topics.requests, group=self._group)
        if not self._items:
            self._items, self._next = self._next or await self._take(self._consumer, _WAIT_SECONDS), []
            self._again = False
        if self._items:
            await self._process_and_look_ahead(self._consumer)
            await self._consumer.acknowledge([item.message for item in self._items])
            await self._count(self._items)
            self._items = []
        await self._measure(self._consumer)
        return True

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    # --- one batch ----------------------------------------------------------------------------------------------------

    async def _take(self, consumer: Consumer, wait_seconds: float) -> list[_Item]:
        return [self._read(message) for message in await consumer.take(at_most=self._batch, wait_seconds=wait_seconds)]

    async def _process_and_look_ahead(self, consumer: Consumer) -> None:
        """The next batch, if it is there already, is read while the frontier's server works on this one."""
        ahead = None if self._next else asyncio.create_task(self._take(consumer, 0.0))
        try:
            await self._process(self._items)
        finally:
            # The consumer is one task's at a time: whoever uses it next has to find this done.
            if ahead is not None:
                with contextlib.suppress(BusError):  # then the next step meets it, too, and says it
                    self._next = await ahead

    def _read(self, message: Message) -> _Item:
        item = _Item(message)
        try:
            item.kind, item.request = self._desk.read(message.value, sent=message.published)
            if item.kind == CRAWL and item.request.fresh:
                item.request.name = _event_id(message)
        except RequestRejected as fault:
            item.fault = fault
        return item

    async def _process(self, items: Sequence[_Item]) -> None:
        again, self._again = self._again, True
        sound = [item for item in items if item.fault is None]
        # In the order they came: a stop is for what was asked before it.
        for is_crawl, group in itertools.groupby(sound, key=lambda item: item.kind == CRAWL):
            part = [item for item in group if not item.done]
            if is_crawl and part:
                await self._submit(part, again=again)
            elif not is_crawl:
                for item in part:
                    await self._handle(item)
        refused = [item for item in items if item.fault is not None]
        await self._outbound.bury(self._letter(item) for item in refused)
        await self._outbound.send(
            [*(self._refusal(item) for item in refused), *(message for item in items for message in item.out)]
        )

    async def _submit(self, items: Sequence[_Item], *, again: bool) -> None:
        if not again:  # else it may be in the frontier, which knows
            for item in items:
                if item.request.has_expired(self._desk.now()):
                    item.done, item.out = True, [self._expired(item)]
            items = [item for item in items if not item.done]
        submissions: list[AdmittedRequest] = [item.request for item in items]
        for item, submitted in zip(items, await self._desk.submit(submissions), strict=True):
            item.done = True
            s: AdmittedRequest = item.request
            if submitted.blacklisted:
                item.out = [
                    answers.blacklisted(
                        s.crawl.id, spider=s.spider, url=s.url, domain=s.domain, result=submitted.blacklisted,
                        now=self._desk.now(),
                    )
                ]  # fmt: skip
            if submitted.added or (again and submitted.reason == DUPLICATE):
                continue
            if submitted.reason == DUPLICATE:
                item.out = [answers.duplicate(s.crawl.id, spider=s.spider, url=s.url, now=self._desk.now())]
            elif s.has_expired(self._desk.now()):
                item.out = [self._expired(item)]
            else:
                item.fault = RequestRejected(submitted.reason, field=submitted.field)

    async def _handle(self, item: _Item) -> None:
        old = True if item.message.topic == self._topics.inbound_actions else None
        try:
            async with asyncio.timeout(_HANDLER_SECONDS):
                item.out = await self._desk.handle(item.kind, item.request, old=old)
        except RequestRejected as fault:
            item.fault = fault
        except (FrontierError, BusError):
            raise
        except TimeoutError:
            item.fault = RequestRejected(f"its handler took more than {_HANDLER_SECONDS:g} s")
        except Exception as error:
            # A plug-in's fault, most likely: it must not keep the requests behind it waiting for ever.
            log.exception("%s %s", names.HANDLER_BROKE, item.kind)
            item.fault = RequestRejected(f"its handler failed: {type(error).__name__}: {error}"[:300])
        item.done = True

    # --- what is said of it -------------------------------------------------------------------------------------------

    def _refusal(self, item: _Item) -> dict[str, Any]:
        assert item.fault is not None
        return answers.rejected(
            self._desk.given(item.message.value),
            field=item.fault.field,
            reason=item.fault.reason,
            now=self._desk.now(),
        )

    def _expired(self, item: _Item) -> dict[str, Any]:
        s: AdmittedRequest = item.request
        return answers.expired_request(
            s.crawl.id,
            spider=s.spider,
            url=s.url,
            event_id=_event_id(item.message),
            now=self._desk.now(),
        )

    def _letter(self, item: _Item) -> dict[str, Any]:
        assert item.fault is not None
        try:
            text, encoding = item.message.value.decode(), "text"
        except UnicodeDecodeError:
            text, encoding = base64.b64encode(item.message.value).decode(), "base64"
        return answers.dead_letter(
            item.message.topic,
            text,
            encoding,
            field=item.fault.field,
            reason=item.fault.reason,
            now=self._desk.now(),
        )

    async def _count(self, items: Sequence[_Item]) -> None:
        counts: Counter[str] = Counter(total=len(items))
        # A batch holds few kinds: each is looked up once, not once a message.
        for (kind, result), many in Counter((item.kind, _result(item)) for item in items).items():
            counts["fail" if result == "rejected" else stats.counted_as(kind)] += many
            self._metrics.requests.labels(kind or "unknown", result).inc(many)
        await self._counters.add(stats.INTAKE, counts)

    async def _measure(self, consumer: Consumer) -> None:
        now = time.monotonic()
        if now - self._measured >= _MEASURE_SECONDS:
            self._measured = now
            self._metrics.lag.set(await consumer.lag())


def _result(item: _Item) -> str:
    if item.fault is not None:
        return "rejected"
    return str(item.out[0]["action"]) if item.kind == CRAWL and item.out else "accepted"


def _event_id(message: Message) -> str:
    """The same for a message however often it is taken, by whichever intake."""
    name = f"{message.topic} {message.position} {message.published}".encode() + message.value
    return hashlib.blake2b(name, digest_size=16).hexdigest()
