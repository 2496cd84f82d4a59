"""The historian: copies what becomes of crawls from the frontier and the bus into the history, a SQL database.

Ends of runs and examples of failures come by the bus: a message is acknowledged after its row was committed, and its
row has the id of what it is about, so that it counts once however often it comes. Counters come from samples of the
frontier. A historian that is killed at any line loses nothing, and any number of them may run. A message that the
database refuses becomes a dead letter, and the others are recorded.
"""

import logging
import time
from collections.abc import Sequence

from gossamer.bus.base import Bus, Consumer, Message, Topics
from gossamer.control.stats import Counters
from gossamer.errors import HistoryRefused, MessageTooLarge
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.retention import RatePosition
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import CrawlId
from gossamer.model.json_codec import encode_value
from gossamer.model.messages.answers import dead_letter
from gossamer.model.messages.history import CrawlEnded, RequestFailed, read_message
from gossamer.services.crawl_sampler import CrawlSampler
from gossamer.services.domain_sampler import DomainSampler
from gossamer.services.service_sampler import ServiceSampler
from gossamer.telemetry import logs
from gossamer.telemetry.metrics import ServiceMetrics

log = logging.getLogger("gossamer.services.historian")

_GROUP = "historian"
"""Last part of the consumer group's name. A group of another name reads the topic from its beginning."""
_MESSAGES = 500
"""Messages that are recorded in one transaction."""
_WAIT_SECONDS = 1.0
"""Longest wait for a message. A stop waits for it."""
_SWEEP_SECONDS = 60.0
"""Time between two deletions of what is older than it is kept."""
_SWEEP_STEP_SECONDS = 0.25
"""Time after which a deletion lets messages and samples pass. 100,000 running crawls have 1,700 new rates a second, so
deletions must do more than that."""


class Historian:
    """Implements Role. Records crawls, their ends and examples of their failures, and deletes what is too old."""

    name = "historian"
    pause_seconds = 0.0

    def __init__(
        self,
        frontier: ValkeyFrontier,
        bus: Bus,
        topics: Topics,
        history: HistoryStore,
        metrics: ServiceMetrics,
        *,
        counters: Counters,
        owner: str,
        retention_seconds: float,
    ) -> None:
        """`owner`: name of this process. `retention_seconds`: time for which a crawl is remembered after its end."""
        self._frontier = frontier
        self._bus = bus
        self._topics = topics
        self._history = history
        self._metrics = metrics
        self._retention_seconds = retention_seconds
        self._sampler = CrawlSampler(frontier, history, owner=owner)
        self._domains = DomainSampler(frontier, history)
        self._service = ServiceSampler(frontier, counters, history)
        self._consumer: Consumer | None = None
        self._swept_at = float("-inf")
        self._thinned = RatePosition()
        """Last row of the rates that was looked at: all up to there are thin enough."""
        self._unrecorded: list[Message] = []
        """Taken from the bus, and not recorded yet."""

    async def run_once(self) -> bool:
        if self._consumer is None:
            self._consumer = await self._bus.consume([self._topics.history], group=f"{self._topics.prefix}-{_GROUP}")
        if not self._unrecorded:
            wait = min(_WAIT_SECONDS, self._sampler.pause_seconds)
            self._unrecorded = await self._consumer.take(at_most=_MESSAGES, wait_seconds=wait)
        if self._unrecorded:
            await self._record(self._unrecorded)
            await self._consumer.acknowledge(self._unrecorded)
            self._unrecorded = []
        await self._sampler.sample()
        if self._sampler.has_turn:
            await self._domains.sample()
            await self._service.sample()
        if time.monotonic() - self._swept_at >= _SWEEP_SECONDS:
            await self._sweep()
        return True

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.close()
            self._consumer = None
        await self._sampler.close()

    async def _record(self, taken: Sequence[Message]) -> None:
        """Record messages, and the last state of the crawls that have ended."""
        messages = [read_message(message.value) for message in taken]
        ended = [message for message in messages if isinstance(message, CrawlEnded)]
        failed = [message for message in messages if isinstance(message, RequestFailed)]
        # Their state first: a crawl may have ended before it was ever sampled.
        await self._record_ended(list(dict.fromkeys(end.crawl for end in ended)))
        try:
            await self._history.record_messages(ended, failed)
        except HistoryRefused as error:
            await self._record_apart(taken, error)
            return
        self._metrics.history_messages.labels("ended").inc(len(ended))
        self._metrics.history_messages.labels("failed").inc(len(failed))

    async def _record_ended(self, crawls: Sequence[CrawlId]) -> None:
        if crawls:
            found = await self._frontier.crawl_infos(crawls)
            await self._sampler.record([info for info in found if info is not None])

    async def _record_apart(self, taken: Sequence[Message], error: HistoryRefused) -> None:
        """Record each half of refused messages by itself, and so on, until what is refused is a single one."""
        if len(taken) > 1:
            for part in (taken[: len(taken) // 2], taken[len(taken) // 2 :]):
                await self._record(part)
            return
        [message] = taken
        log.error("%s a message, which is now a dead letter: %s", logs.HISTORY_REFUSED, error)
        try:
            await self._bus.publish(self._topics.dead_letter, [_letter(message, str(error), now=time.time())])
        except MessageTooLarge as fault:
            log.error("%s and there is no dead letter of it: %s", logs.HISTORY_REFUSED, fault)
        self._metrics.history_messages.labels("refused").inc()

    async def _sweep(self) -> None:
        """Delete batches of what is too old. Where there is more after a while, the next step goes on."""
        now, begun = time.time(), time.monotonic()
        has_old = has_rates = True
        while (has_old or has_rates) and time.monotonic() - begun < _SWEEP_STEP_SECONDS:
            if has_old:
                has_old = await self._history.sweep(before=now - self._retention_seconds)
            if has_rates:
                self._thinned, has_rates = await self._history.thin_rates(now=now, after=self._thinned)
        if not has_old and not has_rates:
            self._swept_at = time.monotonic()


def _letter(message: Message, reason: str, *, now: float) -> bytes:
    """Return the dead letter for a message of the historian's topic."""
    text = message.value.decode(errors="replace")
    return encode_value(dead_letter(message.topic, text, "text", field="", reason=reason, now=now))
