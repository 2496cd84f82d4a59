"""Reports of the services about the state of the cluster and of their process.

Fixed: the names and titles in a dump of the statistics, which Scrapy Cluster's dashboards read.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Mapping

from gossamer.control import stats
from gossamer.control.process_facts import OwnFacts
from gossamer.control.stats import Counters, TroubleReporter
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.telemetry.metrics import ServiceMetrics

log = logging.getLogger("gossamer.services.reporter")

_PAUSE_SECONDS = 5.0
"""Time between two updates of the gauges (metrics of the present state). Must not exceed _HEARTBEAT_SECONDS: heartbeats
are sent in the same steps."""
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
        frontier: ValkeyFrontier,
        counters: Counters,
        metrics: ServiceMetrics,
        *,
        roles: tuple[str, ...],
        dump_seconds: float,
        id: str,
        troubles: Mapping[str, str],
    ) -> None:
        """`roles`: Scrapy Cluster's programs (`stats.INTAKE` ...) in whose place the process sends heartbeats.
        `dump_seconds`: time between two dumps of the statistics into the log; 0: no dumps. `id`: 12 hex digits that
        name this process in the statistics, as in Scrapy Cluster. `troubles`: the current ones of this process, which
        change."""
        self._frontier = frontier
        self._counters = counters
        self._metrics = metrics
        self._roles = roles
        self._dump_seconds = dump_seconds
        self._node = f"{socket.gethostname()}:{id}"
        self._troubles = TroubleReporter(counters, self._node, troubles)
        self._facts = OwnFacts(roles=roles)
        self._heartbeat_at = self._dumped_at = float("-inf")  # the first step does both
        self._spiders = {"link"}
        """Spiders whose gauge is set, to 0 where nothing waits: all that have had waiting requests since the start, and
        the default one, because an autoscaler whose metric has no series keeps its number of workers."""

    async def run_once(self) -> bool:
        now = time.monotonic()
        if now - self._heartbeat_at >= _HEARTBEAT_SECONDS:
            for role in self._roles:
                await self._counters.beat(role, self._node)
            self._heartbeat_at = now
        await self._troubles.report()
        await self._report_facts()
        await self._set_gauges()
        if self._dump_seconds and now - self._dumped_at >= self._dump_seconds:
            await self._dump()
            self._dumped_at = now
        return False  # the next step can wait for `pause_seconds`

    async def close(self) -> None:
        await self._troubles.withdraw()
        await self._counters.report_facts(self._node, None)

    async def _report_facts(self) -> None:
        """Report the facts about this process. The lag is that of one turn of the event loop."""
        asked = time.monotonic()
        await asyncio.sleep(0)
        await self._counters.report_facts(self._node, self._facts.of_service(time.monotonic() - asked))

    async def _set_gauges(self) -> None:
        """Read the state of the cluster, and set the gauges to it."""
        workers = await self._frontier.workers()
        self._metrics.workers.set(len(workers))
        self._metrics.leased.set(sum(worker.leased for worker in workers))
        self._metrics.browser_workers.set(sum(worker.browser for worker in workers))
        backlogs = await self._frontier.backlog()
        queued = {backlog.spider: backlog.queued for backlog in backlogs}
        self._metrics.queued_to_render.set(sum(backlog.rendering for backlog in backlogs))
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
