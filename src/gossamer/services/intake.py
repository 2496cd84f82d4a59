"""Intake of requests from the message bus: crawl requests are submitted in batches to the frontier, the cluster's queue
of requests; other requests (stop, info, statistics ...) are answered.

The order of `run_once` may not change: a batch is processed, its answers are published, and only then is it
acknowledged. A process that is killed in between leaves the batch to another one, so requests and answers come at least
once; whatever a repeated request does must be safe to do twice.
"""

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
from gossamer.control.admission import DUPLICATE, AdmittedRequest, SubmitResult
from gossamer.control.dispatcher import CRAWL, RequestDispatcher
from gossamer.control.stats import Counters
from gossamer.errors import BusError, RequestRejected
from gossamer.model.messages import answers
from gossamer.services.bus_audit import BusAudit, BusEntry
from gossamer.services.outbound import OutboundPublisher
from gossamer.services.role import OUTAGES
from gossamer.telemetry import logs
from gossamer.telemetry.metrics import ServiceMetrics

log = logging.getLogger("gossamer.services.intake")

_WAIT_SECONDS = 1.0
"""Longest wait for the first message of a batch. Longer needs fewer calls, but a stop waits for it."""
_LAG_SECONDS = 15.0
"""Time between two measurements of the lag, the number of requests on the bus that no intake has read. With Kafka each
measurement asks the brokers."""
_HANDLER_SECONDS = 30.0
"""Time limit of a handler. After it the request is rejected, because other requests wait behind it. Too short a time
rejects requests that would succeed, such as a stop of a large crawl; what was begun may be finished."""
_MAX_REASON_CHARACTERS = 300
"""Longest reason in a rejection that names a handler's error."""
_EVENT_ID_BYTES = 16
"""Length of the digest in an event id, by which consumers recognize repeated events and the frontier repeated requests.
After a change, messages that a killed process left behind would look new."""


@dataclass(slots=True)
class _Item:
    """A message of a batch, and its state."""

    message: Message
    kind: str = ""
    """Kind of the request, such as CRAWL. Empty: the message could not be read."""
    request: Any = None
    """The parsed request; for a crawl request, an AdmittedRequest."""
    fault: RequestRejected | None = None
    """Reason why the request is rejected; None: it is not."""
    done: bool = False
    """True once the request is in the frontier, or its answers are known: it is not processed again."""
    answers: list[dict[str, Any]] = field(default_factory=list)
    deliveries: list["asyncio.Future[None]"] = field(default_factory=list)
    """Deliveries of answers that take long; each is done when its answers are durable."""
    entry: BusEntry | None = None
    """Entry of the audit that has begun."""
    result: str = "accepted"
    """`accepted`, `duplicate` or `expired`, for the metric, unless there is a fault. Fixed: a label of the metric."""


class Intake:
    """Implements Role. A batch is acknowledged once each of its requests is in the frontier or its answers are durable.
    A batch that failed is continued where it stopped."""

    name = "intake"
    pause_seconds = 0.0

    def __init__(
        self,
        bus: Bus,
        topics: Topics,
        dispatcher: RequestDispatcher,
        outbound: OutboundPublisher,
        counters: Counters,
        metrics: ServiceMetrics,
        *,
        group: str,
        batch_size: int,
    ) -> None:
        """`group`: consumer group; all intakes of a cluster share one. `batch_size`: most messages in a batch."""
        self._bus = bus
        self._topics = topics
        self._dispatcher = dispatcher
        self._outbound = outbound
        self._counters = counters
        self._metrics = metrics
        self._group = group
        self._batch_size = batch_size
        self.audit: BusAudit | None = None
        """Takes an entry of each change. Set once, before the first step. None: there is no audit."""
        self._consumer: Consumer | None = None
        self._batch: list[_Item] = []
        self._next_batch: list[_Item] = []
        """Taken and parsed while the batch before it was processed."""
        self._unacknowledged: list[tuple[Message, list[asyncio.Future[None]]]] = []
        """Messages that were processed, each with the deliveries of answers for which it waits."""
        self._lag_measured_at = float("-inf")
        self._is_repeated = False
        """True if the batch was started before. Then a duplicate may have been added by the batch's first attempt."""

    async def run_once(self) -> bool:
        if self._consumer is None:
            self._consumer = await self._bus.consume(self._topics.requests, group=self._group)
        if not self._batch:
            self._batch = self._next_batch or await self._take(self._consumer, _WAIT_SECONDS)
            self._next_batch = []
            self._is_repeated = False
        if self._batch:
            await self._process_and_read_ahead(self._consumer)
            # Before the counts, which must not be repeated after an error: they might be added twice.
            done, self._batch = self._batch, []
            self._unacknowledged += [(item.message, item.deliveries) for item in done]
            await self._count(done)
        if self._unacknowledged:
            await self._acknowledge(self._consumer)
        await self._measure_lag(self._consumer)
        return True

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None

    # --- one batch ----------------------------------------------------------------------------------------------------

    async def _take(self, consumer: Consumer, wait_seconds: float) -> list[_Item]:
        """Take the messages of a batch from the bus, and parse them."""
        messages = await consumer.take(at_most=self._batch_size, wait_seconds=wait_seconds)
        return [self._read(message) for message in messages]

    async def _process_and_read_ahead(self, consumer: Consumer) -> None:
        """Process the batch. Meanwhile take and parse the next one, if its messages are there already."""
        ahead = None if self._next_batch else asyncio.create_task(self._take(consumer, 0.0))
        try:
            await self._process(self._batch)
        finally:
            # Only one task at a time may use the consumer, so this one must end before the next call.
            if ahead is not None:
                with contextlib.suppress(BusError):  # the next step has the same error and reports it
                    self._next_batch = await ahead

    async def _acknowledge(self, consumer: Consumer) -> None:
        """Acknowledge the messages whose answers are durable."""
        durable: list[Message] = []
        others: list[tuple[Message, list[asyncio.Future[None]]]] = []
        for message, deliveries in self._unacknowledged:
            if all(delivery.done() for delivery in deliveries):
                durable.append(message)
            else:
                others.append((message, deliveries))
        await consumer.acknowledge(durable)
        self._unacknowledged = others

    def _read(self, message: Message) -> _Item:
        """Parse a message. The item has a fault if it is not a valid request."""
        item = _Item(message)
        try:
            item.kind, item.request = self._dispatcher.read(message.value, sent_at=message.published)
            if item.kind == CRAWL and item.request.fresh:
                # A fresh request begins a new run (fetches everything again), but not twice if the message is repeated.
                item.request.idempotency_key = _event_id(message)
        except RequestRejected as fault:
            item.fault = fault
        return item

    async def _process(self, items: Sequence[_Item]) -> None:
        """Submit or handle each item that is not done, then publish all answers."""
        is_repeated, self._is_repeated = self._is_repeated, True
        valid = [item for item in items if item.fault is None]
        # In the order in which they came, because a stop applies to the requests before it, not to those after it.
        for is_crawl, group in itertools.groupby(valid, key=lambda item: item.kind == CRAWL):
            part = [item for item in group if not item.done]
            if is_crawl and part:
                await self._submit(part, is_repeated=is_repeated)
            elif not is_crawl:
                for item in part:
                    await self._handle(item)
        rejected = [item for item in items if item.fault is not None]
        await self._outbound.bury(self._dead_letter(item) for item in rejected)
        for item in rejected:
            item.answers = [self._rejection(item)]
        in_order = sorted(items, key=lambda item: item.fault is None)  # rejections first, then all others
        late = await self._outbound.send(answer for item in in_order for answer in item.answers)
        if late:
            for item in items:
                appids = {answer.get("appid", "") for answer in item.answers}
                item.deliveries = [delivery for appid, delivery in late.items() if appid in appids]

    async def _submit(self, items: Sequence[_Item], *, is_repeated: bool) -> None:
        """Submit crawl requests, and note the result of each:

        - added: no answer, unless its domain is blacklisted;
        - a duplicate: an answer that says so. In a repeated batch, and if another service has taken the message before,
          it counts as added, because the first attempt may have added it;
        - expired: an answer that says so, which also promises that the request was not added. In those cases the first
          attempt may have added it, so the frontier decides: it reports such a request as a duplicate;
        - refused for another reason: a fault."""
        for item in items:
            may_be_added = is_repeated or item.message.redelivered
            if not may_be_added and item.request.has_expired(self._dispatcher.now()):
                self._set_expired(item)
        items = [item for item in items if not item.done]
        if self.audit is not None:
            await self.audit.begin_submissions((item.message.topic, item.request) for item in items)
        results = await self._dispatcher.submit([item.request for item in items])
        if self.audit is not None:
            refused = {item.request.crawl.id: one.reason for item, one in zip(items, results, strict=True)}
            taken = {item.request.crawl.id for item, one in zip(items, results, strict=True) if _is_taken(one)}
            await self.audit.end_submissions({crawl: refused[crawl] for crawl in refused.keys() - taken})
        now = self._dispatcher.now()
        for item, submitted in zip(items, results, strict=True):
            item.done = True
            request: AdmittedRequest = item.request
            crawl, spider, url = request.crawl.id, request.spider, request.url
            if submitted.blacklisted:  # it was added, but its domain is not fetched at present
                blacklisted = submitted.blacklisted
                item.answers = [
                    answers.blacklisted_answer(
                        crawl, spider=spider, url=url, domain=request.domain, result=blacklisted, now=now
                    )
                ]
            may_be_added = is_repeated or item.message.redelivered
            if submitted.added or (may_be_added and submitted.reason == DUPLICATE):
                continue
            if submitted.reason == DUPLICATE:
                item.result = "duplicate"
                item.answers = [answers.duplicate(crawl, spider=spider, url=url, now=now)]
            elif request.has_expired(now):
                self._set_expired(item)
            else:
                item.fault = RequestRejected(submitted.reason, field=submitted.field)

    async def _handle(self, item: _Item) -> None:
        """Have a request other than a crawl request answered, and note the answers."""
        # Only programs of Scrapy Cluster 1.0 use the topic `inbound_actions`. None: the format that the operator set.
        format_1_0 = True if item.message.topic == self._topics.inbound_actions else None
        if self.audit is not None and item.entry is None:
            item.entry = await self.audit.begin(item.message.topic, item.kind, item.request)
        try:
            async with asyncio.timeout(_HANDLER_SECONDS):
                item.answers = await self._dispatcher.handle(item.kind, item.request, format_1_0=format_1_0)
        except RequestRejected as fault:
            item.fault = fault
        except OUTAGES:
            raise  # an outage: the batch is repeated from this item on
        except TimeoutError:
            item.fault = RequestRejected(f"its handler took more than {_HANDLER_SECONDS:g} s")
        except Exception as error:
            # Most likely a bug of a plug-in. The requests behind this one must not wait for ever.
            log.exception("%s %s", logs.HANDLER_BROKE, item.kind)
            reason = f"its handler failed: {type(error).__name__}: {error}"
            item.fault = RequestRejected(reason[:_MAX_REASON_CHARACTERS])
        item.done = True
        if self.audit is not None and item.entry is not None:
            reason = item.fault.detail if item.fault else ""
            await self.audit.end(item.entry, item.request, item.answers, reason)

    # --- answers and counts -------------------------------------------------------------------------------------------

    def _rejection(self, item: _Item) -> dict[str, Any]:
        """Return the answer to a request with a fault."""
        assert item.fault is not None
        return answers.rejected(
            self._dispatcher.readable_fields(item.message.value),
            field=item.fault.field,
            reason=item.fault.reason,
            now=self._dispatcher.now(),
        )

    def _set_expired(self, item: _Item) -> None:
        """Note that the request expired before it was added."""
        request: AdmittedRequest = item.request
        answer = answers.expired_request(
            request.crawl.id,
            spider=request.spider,
            url=request.url,
            event_id=_event_id(item.message),
            now=self._dispatcher.now(),
        )
        item.done, item.result, item.answers = True, "expired", [answer]

    def _dead_letter(self, item: _Item) -> dict[str, Any]:
        """Return the message for the dead letter topic: the fault, and the rejected message as text or base64."""
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
            now=self._dispatcher.now(),
        )

    async def _count(self, items: Sequence[_Item]) -> None:
        """Add a finished batch to the statistics and the metrics."""
        counts: Counter[str] = Counter(total=len(items))
        # A batch has few kinds, so each counter is looked up once instead of once for each message.
        by_kind = Counter((item.kind, "rejected" if item.fault else item.result) for item in items)
        for (kind, result), count in by_kind.items():
            counts["fail" if result == "rejected" else stats.request_counter(kind)] += count
            self._metrics.requests.labels(kind or "unknown", result).inc(count)
        await self._counters.add(stats.INTAKE, counts)

    async def _measure_lag(self, consumer: Consumer) -> None:
        now = time.monotonic()
        if now - self._lag_measured_at >= _LAG_SECONDS:
            self._lag_measured_at = now
            self._metrics.lag.set(await consumer.lag())


def _is_taken(result: SubmitResult) -> bool:
    return result.added or result.reason == DUPLICATE


def _event_id(message: Message) -> str:
    """Return an id that is the same whenever any intake takes this message."""
    name = f"{message.topic} {message.position} {message.published}".encode() + message.value
    return hashlib.blake2b(name, digest_size=_EVENT_ID_BYTES).hexdigest()
