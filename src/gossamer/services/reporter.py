"""Says what the cluster is and does: heartbeats of this process, gauges, and statistics dumped into the log."""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.control import stats
from gossamer.control.stats import Counters
from gossamer.errors import MessageTooLarge
from gossamer.frontier.base import Frontier
from gossamer.model.messages import answers
from gossamer.sinks.remote import BlobStore
from gossamer.telemetry.metrics import Metrics

log = logging.getLogger("gossamer.services.reporter")

_SECONDS = 5.0
_BEAT_SECONDS = 30.0


class ServiceReporter:
    """Implements Role."""

    name = "reporter"
    pause_seconds = _SECONDS

    def __init__(
        self,
        frontier: Frontier,
        counters: Counters,
        metrics: Metrics,
        *,
        roles: tuple[str, ...],
        dump_seconds: float,
        id: str,
    ) -> None:
        """`id`: 12 hex digits, as the original's; this process in the statistics.
        `roles`: what this process is, for the heartbeats. `dump_seconds`: between two dumps; 0: none."""
        self._frontier = frontier
        self._counters = counters
        self._metrics = metrics
        self._roles = roles
        self._dump_seconds = dump_seconds
        self._node = f"{socket.gethostname()}:{id}"
        self._beaten = self._dumped = 0.0
        self._spiders: set[str] = set()
        """Spiders whose requests have ever waited since the start."""

    async def run_once(self) -> bool:
        now = time.monotonic()
        if not self._beaten or now - self._beaten >= _BEAT_SECONDS:
            for role in self._roles:
                await self._counters.beat(role, self._node)
            self._beaten = now
        await self._measure()
        if self._dump_seconds and now - self._dumped >= self._dump_seconds:
            await self._dump()
            self._dumped = now
        return False

    async def close(self) -> None:
        return

    async def _measure(self) -> None:
        workers = await self._frontier.workers()
        self._metrics.workers.set(len(workers))
        self._metrics.leased.set(sum(worker.leased for worker in workers))
        queued = {backlog.spider: backlog.queued for backlog in await self._frontier.backlog()}
        self._spiders |= queued.keys()
        for spider in self._spiders:
            self._metrics.queued.labels(spider).set(queued.get(spider, 0))
        for role in (stats.INTAKE, stats.ACTIONS, stats.CRAWLER, stats.REST):
            nodes = await self._counters.nodes(role)
            self._metrics.processes.labels(role).set(sum(map(len, nodes.values())))

    async def _dump(self) -> None:
        for group, title in ((stats.INTAKE, "Kafka Monitor"), (stats.ACTIONS, "Redis Monitor")):
            log.info("%s Stats Dump", title, extra=_flat(await self._counters.read(group)))
        log.info("Crawler Stats Dump", extra=_crawler(await stats.body(self._frontier, self._counters, "spider")))
        log.info("Queue Stats Dump", extra=_queues(await stats.queues(self._frontier)))


def _flat(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """`total_900`, `fail_3600`, `plugin_ScraperHandler_lifetime` ...: the names that the original's dashboards know."""
    found = {}
    for name, windows in counts.items():
        kind, _, plugin = name.partition(":")
        for window, number in windows.items():
            found[f"plugin_{plugin}_{window}" if plugin else f"{kind}_{window}"] = number
    return found


def _crawler(body: dict[str, dict[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for spider, codes in body["spiders"].items():
        if not isinstance(codes, dict):
            found[spider] = codes
            continue
        for code, windows in codes.items():
            if isinstance(windows, dict):
                found |= {f"{spider}_{code}_{window}": number for window, number in windows.items()}
            else:
                found[f"{spider}_spider_count"] = windows
    return found


def _queues(body: dict[str, object]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, queue in body.items():
        if isinstance(queue, dict):
            found |= {f"{name}_spider_backlog": queue["spider_backlog"], f"{name}_num_domains": queue["num_domains"]}
        else:
            found[name] = queue
    return found


_encoder = msgspec.json.Encoder()

_SHORT = 1000
"""Characters of a text that stays in the message when the rest of it is elsewhere."""


class OutboundPublisher:
    """Publishes messages. One without an `appid` goes to everybody's topic only, and so does a refusal whose
    application has no topic yet.

    Raises what the bus raises; repeating repeats messages."""

    def __init__(
        self, bus: Bus, topics: Topics, blobs: BlobStore, *, firehose: bool = True, per_app: bool = True
    ) -> None:
        """`blobs`: where a message goes that is larger than the bus takes. `firehose`, `per_app`: which topics are
        written."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._firehose = firehose
        self._per_app = per_app

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """All of them, durable when this returns."""
        every = list(messages)
        await self._fitting(lambda: self._send(every))

    async def bury(self, letters: Iterable[dict[str, Any]]) -> None:
        """Keep what was refused in the dead-letter topic."""
        every = list(letters)
        await self._fitting(lambda: self._bury(every))

    async def _fitting(self, put: Callable[[], Awaitable[None]]) -> None:
        """Again, when a topic turned out to allow less than was known."""
        while True:
            known = self._bus.max_message_bytes
            try:
                return await put()
            except MessageTooLarge:
                if self._bus.max_message_bytes >= known:
                    raise

    async def _send(self, messages: Sequence[dict[str, Any]]) -> None:
        by_topic: dict[str, list[bytes]] = {}
        doubtful: set[str] = set()
        for message in messages:
            value = await self._encoded(message)
            if self._firehose:
                by_topic.setdefault(self._topics.outbound, []).append(value)
            appid = message.get("appid")
            if self._per_app and appid:
                topic = self._topics.outbound_to(appid)
                by_topic.setdefault(topic, []).append(value)
                if message.get("action") == answers.REJECTED:
                    doubtful.add(topic)
        if doubtful:  # a refused request may name any application: it must not make topics
            for topic in doubtful - await self._bus.existing(doubtful):
                del by_topic[topic]
        await asyncio.gather(*(self._bus.publish(topic, values) for topic, values in by_topic.items()))

    async def _bury(self, letters: Sequence[dict[str, Any]]) -> None:
        values = [await self._encoded(letter) for letter in letters]
        if values:
            await self._bus.publish(self._topics.dead_letter, values)

    async def _encoded(self, message: dict[str, Any]) -> bytes:
        """As JSON; of one that is too large the short fields, and where all of it is."""
        value = _encoder.encode(message)
        if len(value) <= self._bus.max_message_bytes:
            return value
        [address] = await self._blobs.put([value])
        return _encoder.encode({name: _short(part) for name, part in message.items()} | {"whole_address": address})


def _short(part: Any) -> Any:
    match part:
        case dict() | list():
            return type(part)()
        case str() if len(part) > _SHORT:
            return ""
    return part
