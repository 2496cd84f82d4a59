"""Statistics in Scrapy Cluster's form: counters over windows of time, living processes, and backlogs."""

import asyncio
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

from gossamer.errors import FrontierError
from gossamer.frontier.base import Frontier
from gossamer.telemetry.tally import Tally
from gossamer.valkey.client import Script, load_scripts
from gossamer.valkey.shards import Shards

_SCRIPTS: dict[str, Script] = load_scripts(resources.files("gossamer.control") / "scripts")

WINDOWS: tuple[tuple[int, str, int], ...] = (
    (900, "m", 60),
    (3600, "m", 60),
    (6 * 3600, "q", 900),
    (12 * 3600, "q", 900),
    (24 * 3600, "q", 900),
    (7 * 24 * 3600, "h", 3600),
)
"""Scrapy Cluster's windows: (seconds, kind of bucket, seconds of a bucket). A window is exact to one of its buckets.
The script `count` has the same buckets."""

LIFE_SECONDS = 30 * 86400
"""A counter that did not change for this long is deleted, including its lifetime count."""

SILENT_SECONDS = 120
"""A process without a heartbeat for this long counts as gone; Scrapy Cluster's HEARTBEAT_TIMEOUT."""


class Counters:
    """Counters by group (`kafka-monitor`, `crawler` ...) and name. Every call may raise FrontierUnavailable.

    Keys: `{prefix:stats:group}` and `{prefix:stats:group}:name`, which expire LIFE_SECONDS after the last change;
    `{prefix:nodes:role}`, which expires after SILENT_SECONDS.
    """

    def __init__(self, shards: Shards, *, prefix: str, clock: Callable[[], float] | None = None) -> None:
        """`clock`: returns epoch seconds in place of the server's clock; for tests only."""
        self._shards = shards
        self._prefix = prefix
        self._clock = clock

    async def add(self, group: str, counts: Mapping[str, int]) -> None:
        """Increase counters. Do not repeat the call after an error: it may have been carried out."""
        if counts:
            pairs = [part for pair in counts.items() for part in pair]
            await self._call("count", self._group(group), LIFE_SECONDS, *pairs)

    async def read(self, group: str) -> dict[str, dict[str, int]]:
        """Return the counts of a group by counter and window (seconds, as a string, and `lifetime`). Windows without
        any are left out."""
        now, rows = await self._call("read_counts", self._group(group))
        return {rows[at].decode(): _windows(rows[at + 1], now) for at in range(0, len(rows), 2)}

    async def beat(self, role: str, node: str) -> None:
        """Record that a process (`host:id`) is alive."""
        await self._call("heartbeat", self._role(role), SILENT_SECONDS, node)

    async def nodes(self, role: str) -> dict[str, list[str]]:
        """Return the living processes of a role: their ids by host."""
        found: dict[str, list[str]] = {}
        for node in await self._call("heartbeat", self._role(role), SILENT_SECONDS, ""):
            host, _, name = node.decode().rpartition(":")
            found.setdefault(host, []).append(name)
        return found

    async def all_nodes(self, roles: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
        """Return `nodes` for several roles, by role."""
        return dict(zip(roles, await asyncio.gather(*map(self.nodes, roles)), strict=True))

    async def _call(self, script: str, key: str, *arguments: str | int) -> list:  # type: ignore[type-arg]
        now = "" if self._clock is None else repr(self._clock())
        answer: list = await self._shards.call(0, _SCRIPTS[script], [key], [now, *arguments])  # type: ignore[type-arg]
        return answer

    def _group(self, group: str) -> str:
        return f"{{{self._prefix}:stats:{group}}}"

    def _role(self, role: str) -> str:
        return f"{{{self._prefix}:nodes:{role}}}"


def _windows(row: list[bytes], now: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    fields = {row[at].decode(): int(row[at + 1]) for at in range(0, len(row), 2)}
    for seconds, kind, size in WINDOWS:
        first = (now - seconds) // size + 1
        total = sum(number for name, number in fields.items() if name[0] == kind and int(name[1:] or 0) >= first)
        if total:
            counts[str(seconds)] = total
    if fields.get("lifetime"):
        counts["lifetime"] = fields["lifetime"]
    return counts


KINDS = ("all", "kafka-monitor", "redis-monitor", "crawler", "spider", "machine", "queue", "rest")
"""Kinds of statistics that a request may name."""

INTAKE = "kafka-monitor"
ACTIONS = "redis-monitor"
CRAWLER = "crawler"
REST = "rest"
"""Groups of counters and roles of processes. The names are Scrapy Cluster's, whichever bus is used."""

_INTAKE_PLUGINS = {
    "crawl": "ScraperHandler",
    "action": "ActionHandler",
    "stats": "StatsHandler",
    "domain": "ZookeeperHandler",
}

MAX_NAMED_DOMAINS = 1000
"""Domains listed in one spider's backlog."""

_SEPARATOR = "|"
"""Separates host, spider and status code in the names of the group `crawler`."""


def response_counter(host: str, spider: str, code: int) -> str:
    """Return the counter of a host's responses to a spider with this status code."""
    return f"{host.replace(_SEPARATOR, '_')}{_SEPARATOR}{spider.replace(_SEPARATOR, '_')}{_SEPARATOR}{code}"


def worker_node(host: str, spider: str, name: str) -> str:
    """Return the process, in the role `crawler`, of a worker that runs this spider."""
    return f"{host.replace(_SEPARATOR, '_')}{_SEPARATOR}{spider.replace(_SEPARATOR, '_')}:{name}"


def request_counter(kind: str) -> str:
    """Return the counter of requests of this kind in the group INTAKE; it has the name of Scrapy Cluster's plug-in."""
    return f"plugins:{_INTAKE_PLUGINS.get(kind, kind)}"


async def body(frontier: Frontier, counters: Counters, kind: str) -> dict[str, Any]:
    """Return the part of a stats answer that depends on the kind, one of KINDS."""
    match kind:
        case "all":
            return {
                INTAKE: await body(frontier, counters, INTAKE),
                ACTIONS: await body(frontier, counters, ACTIONS),
                CRAWLER: await body(frontier, counters, CRAWLER),
                REST: await body(frontier, counters, REST),
            }
        case "kafka-monitor" | "redis-monitor":
            return _service(await counters.read(kind)) | {"nodes": await counters.nodes(kind)}
        case "rest":
            return {"nodes": await counters.nodes(REST)}
        case "spider":
            return {"spiders": await _spiders(counters)}
        case "machine":
            return {"machines": await _machines(counters)}
        case "queue":
            return {"queues": await queues(frontier)}
        case "crawler":
            return {
                "spiders": await _spiders(counters),
                "machines": await _machines(counters),
                "queue": await queues(frontier),
            }
    raise ValueError(kind)


async def queues(frontier: Frontier) -> dict[str, Any]:
    """Return the backlog of every spider with up to MAX_NAMED_DOMAINS domains, the longest backlogs first. If a spider
    has more domains, these are not necessarily the longest of all."""
    found: dict[str, Any] = {"total_backlog": 0}
    for backlog in await frontier.backlog():
        domains, cursor = await frontier.backlog_domains(backlog.spider, limit=MAX_NAMED_DOMAINS)
        while cursor and len(domains) < MAX_NAMED_DOMAINS:
            more, cursor = await frontier.backlog_domains(backlog.spider, cursor=cursor, limit=MAX_NAMED_DOMAINS)
            domains += more
        domains.sort(key=lambda pair: (-pair[1], pair[0]))
        found["total_backlog"] += backlog.queued
        found[f"queue_{backlog.spider}"] = {
            "spider_backlog": backlog.queued,
            "num_domains": backlog.domains,
            "domains": [{"domain": domain, "backlog": count} for domain, count in domains[:MAX_NAMED_DOMAINS]],
        }
    return found


def _service(counts: dict[str, dict[str, int]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    plugins: dict[str, dict[str, int]] = {}
    for name, windows in counts.items():
        kind, _, plugin = name.partition(":")
        if plugin:
            plugins[plugin] = windows
        else:
            found[kind] = windows
    return {**found, "plugins": plugins}


async def _spiders(counters: Counters) -> dict[str, Any]:
    spiders: dict[str, Any] = {}
    for name, windows in (await counters.read(CRAWLER)).items():
        _, spider, code = name.split(_SEPARATOR)
        _sum_into(spiders.setdefault(spider, {"count": 0}).setdefault(code, {}), windows)
    for place, names in (await counters.nodes(CRAWLER)).items():
        _, spider = place.split(_SEPARATOR)
        spiders.setdefault(spider, {"count": 0})["count"] += len(names)
    # A process that runs several spiders counts once for each: in Scrapy Cluster, a process is a spider.
    total = sum(spider["count"] for spider in spiders.values())
    return {"unique_spider_count": len(spiders), "total_spider_count": total, **spiders}


async def _machines(counters: Counters) -> dict[str, Any]:
    machines: dict[str, Any] = {}
    for name, windows in (await counters.read(CRAWLER)).items():
        host, _, code = name.split(_SEPARATOR)
        _sum_into(machines.setdefault(host, {}).setdefault(code, {}), windows)
    for place in await counters.nodes(CRAWLER):
        machines.setdefault(place.split(_SEPARATOR)[0], {})
    return {"count": len(machines), **machines}


def _sum_into(sums: dict[str, int], windows: dict[str, int]) -> None:
    for window, number in windows.items():
        sums[window] = sums.get(window, 0) + number


_REPORT_SECONDS = 5.0
_HEARTBEAT_SECONDS = SILENT_SECONDS / 4
"""Time between two heartbeats: three of them may be lost before the process counts as gone."""


class StatsReporter:
    """Reports a worker's statistics: responses by status code, and a heartbeat for each of its spiders.

    Counts that an outage keeps back are reported after it.
    """

    def __init__(self, counters: Counters, tally: Callable[[], Tally], spiders: Sequence[str]) -> None:
        self._counters = counters
        self._tally = tally
        self._host = socket.gethostname()
        worker = secrets.token_hex(6)
        self._nodes = [worker_node(self._host, spider, worker) for spider in spiders]
        self._reported: dict[str, int] = {}
        self._last_heartbeat = float("-inf")

    async def run(self) -> None:
        """Report every few seconds until cancelled. Call `report` once more after that."""
        while True:
            await self.report()
            await asyncio.sleep(_REPORT_SECONDS)

    async def report(self) -> None:
        """Report what was counted since the last report."""
        now = asyncio.get_running_loop().time()
        counts = {
            response_counter(self._host, spider, code): count
            for spider, codes in self._tally().statuses.items()
            for code, count in codes.items()
        }
        new = {name: count - self._reported.get(name, 0) for name, count in counts.items()}
        try:
            if now - self._last_heartbeat >= _HEARTBEAT_SECONDS:
                for node in self._nodes:
                    await self._counters.beat(CRAWLER, node)
                self._last_heartbeat = now
            await self._counters.add(CRAWLER, {name: count for name, count in new.items() if count})
        except FrontierError:
            return
        self._reported = counts
