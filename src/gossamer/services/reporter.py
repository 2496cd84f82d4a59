"""Reports of the services: `ServiceReporter` reports their state, `OutboundPublisher` sends answers and events.

The numbers below may be tuned within the bounds of their texts. Fixed: the names and titles in a dump of the
statistics, which Scrapy Cluster's dashboards read, and which messages go to which topic of the bus (the message queue
of the cluster), where applications consume them.
"""

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

_PAUSE_SECONDS = 5.0
"""Time between two updates of the gauges (metrics of the present state). May be changed, but must not exceed
_HEARTBEAT_SECONDS: heartbeats are sent in the same steps."""
_HEARTBEAT_SECONDS = stats.SILENT_SECONDS / 4
"""Time between two heartbeats: three of them may be lost before the process counts as gone. May be shorter; must stay
well below `stats.SILENT_SECONDS`."""


class ServiceReporter:
    """Implements Role, the interface of a background service. Reports the state of the cluster and of this process:
    heartbeats, gauges, dumps into the log.

    The frontier, which it asks, is the cluster's queue of requests; spiders are the programs that read fetched
    pages."""

    name = "reporter"
    pause_seconds = _PAUSE_SECONDS

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
        """`roles`: Scrapy Cluster's programs (`stats.INTAKE` ...) in whose place the process sends heartbeats.
        `dump_seconds`: time between two dumps of the statistics into the log; 0: no dumps. `id`: 12 hex digits that
        name this process in the statistics, as in Scrapy Cluster."""
        self._frontier = frontier
        self._counters = counters
        self._metrics = metrics
        self._roles = roles
        self._dump_seconds = dump_seconds
        self._node = f"{socket.gethostname()}:{id}"
        self._heartbeat_at = self._dumped_at = float("-inf")  # the first step does both
        self._spiders: set[str] = set()
        """Spiders that have had waiting requests since the start; the gauge of one without any is set to 0."""

    async def run_once(self) -> bool:
        now = time.monotonic()
        if now - self._heartbeat_at >= _HEARTBEAT_SECONDS:
            for role in self._roles:
                await self._counters.beat(role, self._node)
            self._heartbeat_at = now
        await self._set_gauges()
        if self._dump_seconds and now - self._dumped_at >= self._dump_seconds:
            await self._dump()
            self._dumped_at = now
        return False  # the next step can wait for `pause_seconds`

    async def close(self) -> None:
        return

    async def _set_gauges(self) -> None:
        """Read the state of the cluster, and set the gauges to it."""
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
        """Write all statistics into the log, under Scrapy Cluster's titles."""
        for group, title in ((stats.INTAKE, "Kafka Monitor"), (stats.ACTIONS, "Redis Monitor")):
            log.info("%s Stats Dump", title, extra=_flat_counts(await self._counters.read(group)))
        log.info("Crawler Stats Dump", extra=_flat_crawler(await stats.body(self._frontier, self._counters, "spider")))
        log.info("Queue Stats Dump", extra=_flat_queues(await stats.queues(self._frontier)))


def _flat_counts(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return counts by Scrapy Cluster's names, which its dashboards read and which must not change.

    `{"total": {"900": 7}, "plugins:ScraperHandler": {"lifetime": 9}}` becomes
    `{"total_900": 7, "plugin_ScraperHandler_lifetime": 9}`."""
    flat = {}
    for counter, windows in counts.items():
        name, _, plugin = counter.partition(":")
        for window, count in windows.items():
            flat[f"plugin_{plugin}_{window}" if plugin else f"{name}_{window}"] = count
    return flat


def _flat_crawler(body: dict[str, dict[str, object]]) -> dict[str, object]:
    """Return the statistics of the spiders by Scrapy Cluster's names, such as `link_200_900` and `link_spider_count`.

    `body["spiders"]` has by spider the counts by status code and window, and the number of its workers. Its numbers
    for all spiders together stand beside the spiders, and keep their names."""
    flat: dict[str, object] = {}
    for name, value in body["spiders"].items():
        if not isinstance(value, dict):  # a number for all spiders
            flat[name] = value
            continue
        for code, windows in value.items():
            if isinstance(windows, dict):
                flat |= {f"{name}_{code}_{window}": count for window, count in windows.items()}
            else:  # the number of the spider's workers
                flat[f"{name}_spider_count"] = windows
    return flat


def _flat_queues(body: dict[str, object]) -> dict[str, object]:
    """Return the sizes of the queues by Scrapy Cluster's names, such as `queue_link_spider_backlog`."""
    flat: dict[str, object] = {}
    for name, queue in body.items():
        if isinstance(queue, dict):
            flat[f"{name}_spider_backlog"] = queue["spider_backlog"]
            flat[f"{name}_num_domains"] = queue["num_domains"]
        else:
            flat[name] = queue
    return flat


_MAX_KEPT_CHARACTERS = 1000
"""Strings of more characters are left out of a message that is too large for the bus; the whole message goes to the
blob store. May be changed, but the strings that remain in a message must fit on the bus together."""
_encoder = msgspec.json.Encoder()


class OutboundPublisher:
    """Publishes answers and events, to the common topic and to the topic of the message's `appid`, the application that
    sent the request.

    Rejections alone do not create an application's topic: unless it exists, they go only to the common one. Methods
    raise errors of the bus. A call that is repeated may publish messages twice."""

    def __init__(
        self, bus: Bus, topics: Topics, blobs: BlobStore, *, firehose: bool = True, per_app: bool = True
    ) -> None:
        """`blobs`: stores messages that are too large for the bus. `firehose`: True to publish to the common topic;
        `per_app`: True to publish to the applications' topics."""
        self._bus = bus
        self._topics = topics
        self._blobs = blobs
        self._firehose = firehose
        self._per_app = per_app

    async def send(self, messages: Iterable[dict[str, Any]]) -> None:
        """Publish messages. They are durable when this returns."""
        to_send = list(messages)
        await self._publish_within_limit(lambda: self._send(to_send))

    async def bury(self, letters: Iterable[dict[str, Any]]) -> None:
        """Publish dead letters of rejected requests."""
        to_send = list(letters)
        await self._publish_within_limit(lambda: self._bury(to_send))

    async def _publish_within_limit(self, publish: Callable[[], Awaitable[None]]) -> None:
        """Call `publish`, which shortens messages to `max_message_bytes`; call it again whenever that limit has fallen.

        The limit of a topic is known only after its first use, so the first attempt may be too large for it."""
        while True:
            known_limit = self._bus.max_message_bytes
            try:
                return await publish()
            except MessageTooLarge:
                if self._bus.max_message_bytes >= known_limit:
                    raise

    async def _send(self, messages: Sequence[dict[str, Any]]) -> None:
        """Publish each message to its topics. Messages of one topic stay in their order."""
        by_topic: dict[str, list[bytes]] = {}
        rejection_topics: set[str] = set()
        other_topics: set[str] = set()
        for message in messages:
            value = await self._encoded(message)
            if self._firehose:
                by_topic.setdefault(self._topics.outbound, []).append(value)
            appid = message.get("appid")
            if self._per_app and appid:
                topic = self._topics.outbound_to(appid)
                by_topic.setdefault(topic, []).append(value)
                if message.get("action") == answers.REJECTED:
                    rejection_topics.add(topic)
                else:
                    other_topics.add(topic)
        # An invalid request may name any application, so rejections alone must not create a topic.
        only_rejections = rejection_topics - other_topics
        if only_rejections:
            missing_topics = only_rejections - await self._bus.existing(only_rejections)
            for topic in missing_topics:
                del by_topic[topic]
        await asyncio.gather(*(self._bus.publish(topic, values) for topic, values in by_topic.items()))

    async def _bury(self, letters: Sequence[dict[str, Any]]) -> None:
        """Publish messages on the topic of dead letters."""
        values = [await self._encoded(letter) for letter in letters]
        if values:
            await self._bus.publish(self._topics.dead_letter, values)

    async def _encoded(self, message: dict[str, Any]) -> bytes:
        """Return the message as JSON; if it is too large, its short fields and the address of the whole message."""
        value = _encoder.encode(message)
        if len(value) <= self._bus.max_message_bytes:
            return value
        [address] = await self._blobs.put([value])
        return _encoder.encode({name: _shortened(part) for name, part in message.items()} | {"whole_address": address})


def _shortened(part: Any) -> Any:
    """Return the value of a field, emptied if it may be long: a container, or a long string. Its type stays as the
    schema of the message says."""
    match part:
        case dict() | list():
            return type(part)()
        case str() if len(part) > _MAX_KEPT_CHARACTERS:
            return ""
    return part
