"""Statistics in Scrapy Cluster's form: counters over windows of time, living processes, and backlogs.

Fixed: names of groups, counters and windows, and the shape of `body`, which clients of Scrapy Cluster read. Names of
counters and keys are also stored, for LIFE_SECONDS. All counts are for people: none decides what is crawled, so a lost
or doubled one does no harm.
"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gossamer.errors import FrontierError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.json_codec import encode_value
from gossamer.telemetry.tally import Tally
from gossamer.valkey.scripts import Scripts
from gossamer.valkey.shards import Shards

_SCRIPTS = Scripts(Path(__file__).with_name("scripts"))
_decode = msgspec.json.Decoder(dict[str, str]).decode


class Window(NamedTuple):
    """Period of time for which counts are shown. They are exact to one bucket."""

    seconds: int
    bucket: str
    """Letter with which the fields of these buckets begin in a stored counter."""
    bucket_seconds: int


WINDOWS = (
    Window(900, "m", 60),
    Window(3600, "m", 60),
    Window(6 * 3600, "q", 900),
    Window(12 * 3600, "q", 900),
    Window(24 * 3600, "q", 900),
    Window(7 * 24 * 3600, "h", 3600),
)
"""Scrapy Cluster's windows: fixed. The script `count` stores the same buckets, as many as the longest window of each
needs."""

LIFE_SECONDS = 30 * 86400
"""A counter that did not change for this long is deleted, including its lifetime count. Must stay above the longest
window."""

SILENT_SECONDS = 120
"""A process without a heartbeat for this long counts as gone; Scrapy Cluster's HEARTBEAT_TIMEOUT."""

_TROUBLE_SECONDS = 30
"""Age at which the reported troubles of a process are forgotten. Must be a few times the pause between two reports
(_REPORT_SECONDS, and that of `services.reporter`)."""


class Counters:
    """Counters by group (`kafka-monitor`, `crawler` ...) and name. Every call may raise FrontierUnavailable.

    They are kept in the server of the frontier (the store of waiting requests). Keys: `{prefix:stats:group}` and
    `{prefix:stats:group}:name`, which expire LIFE_SECONDS after the last change; `{prefix:nodes:role}`, which expires
    after SILENT_SECONDS; `{prefix:troubles}` and `{prefix:processes}`, which expire after _TROUBLE_SECONDS.
    """

    def __init__(self, shards: Shards, *, prefix: str, clock: Callable[[], float] | None = None) -> None:
        """`clock`: returns epoch seconds in place of the server's clock; for tests only."""
        self._shards = shards
        self._prefix = prefix
        self._clock = clock

    async def add(self, group: str, counts: Mapping[str, int]) -> None:
        """Increase counters. A repeat after an error may count twice: the first call may have been carried out."""
        if counts:
            pairs = [part for pair in counts.items() for part in pair]
            await self._call("count", self._group(group), LIFE_SECONDS, *pairs)

    async def read(self, group: str) -> dict[str, dict[str, int]]:
        """Return the counts of a group by counter and window (seconds, as a string, and `lifetime`). Windows without
        any are left out."""
        now, rows = await self._call("read_counts", self._group(group))
        names, counters = rows[::2], rows[1::2]  # in the reply each name is followed by its counter
        return {name.decode(): _by_window(fields, now) for name, fields in zip(names, counters, strict=True)}

    async def beat(self, role: str, node: str) -> None:
        """Record that a process (`host:id`) is alive."""
        await self._call("heartbeat", self._role(role), SILENT_SECONDS, node)

    async def nodes(self, role: str) -> dict[str, list[str]]:
        """Return the living processes of a role: their ids by host."""
        found: dict[str, list[str]] = {}
        # Without the name of a process, the script only returns those that are alive.
        for node in await self._call("heartbeat", self._role(role), SILENT_SECONDS, ""):
            host, _, name = node.decode().rpartition(":")
            found.setdefault(host, []).append(name)
        return found

    async def all_nodes(self, roles: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
        """Return `nodes` for several roles, by role."""
        return dict(zip(roles, await asyncio.gather(*map(self.nodes, roles)), strict=True))

    async def report_troubles(self, node: str, troubles: Mapping[str, str]) -> None:
        """Record the troubles that a process (`host:id`) has now: messages by name. Repeat it while there are any."""
        await self._call("troubles", self._troubles, _TROUBLE_SECONDS, node, encode_value(troubles) if troubles else "")

    async def troubles(self) -> dict[str, dict[str, str]]:
        """Return the troubles of all processes, by process: messages by name."""
        rows = await self._call("troubles", self._troubles, _TROUBLE_SECONDS, "", "")
        return {node.decode(): _decode(text) for node, text in zip(rows[::2], rows[1::2], strict=True)}

    async def report_facts(self, node: str, facts: Mapping[str, Any] | None) -> None:
        """Record the facts about a process (`host:id`), see `ProcessFacts`; None: it has ended. Repeat it while it
        runs."""
        await self._call("troubles", self._facts, _TROUBLE_SECONDS, node, encode_value(facts) if facts else "")

    async def facts(self) -> dict[str, bytes]:
        """Return the facts about all processes as JSON, by process."""
        rows = await self._call("troubles", self._facts, _TROUBLE_SECONDS, "", "")
        return {node.decode(): text for node, text in zip(rows[::2], rows[1::2], strict=True)}

    async def _call(self, script: str, key: str, *arguments: str | int | bytes) -> list:  # type: ignore[type-arg]
        now = "" if self._clock is None else repr(self._clock())
        answer: list = await self._shards.call(0, _SCRIPTS[script], [key], [now, *arguments])  # type: ignore[type-arg]
        return answer

    def _group(self, group: str) -> str:
        return f"{{{self._prefix}:stats:{group}}}"

    def _role(self, role: str) -> str:
        return f"{{{self._prefix}:nodes:{role}}}"

    @property
    def _troubles(self) -> str:
        return f"{{{self._prefix}:troubles}}"

    @property
    def _facts(self) -> str:
        return f"{{{self._prefix}:processes}}"


class TroubleReporter:
    """Reports the troubles of one process. A process without any makes no calls."""

    def __init__(self, counters: Counters, node: str, troubles: Mapping[str, str]) -> None:
        """`node`: the process, `host:id`. `troubles`: its current ones, which change."""
        self._counters = counters
        self._node = node
        self._troubles = troubles
        self._are_reported = False

    async def report(self) -> None:
        """Report what the process has now. Raises FrontierError."""
        if self._troubles or self._are_reported:
            are_reported = bool(self._troubles)
            await self._counters.report_troubles(self._node, self._troubles)
            self._are_reported = are_reported

    async def withdraw(self) -> None:
        """Report that the process has ended. Raises FrontierError."""
        if self._are_reported:
            await self._counters.report_troubles(self._node, {})


def _by_window(row: list[bytes], now: int) -> dict[str, int]:
    """Return the counts of a stored counter. `row`: its fields, each followed by its count. A field is `lifetime`, or
    the letter of a bucket and the bucket's number since the epoch."""
    fields = {field.decode(): int(count) for field, count in zip(row[::2], row[1::2], strict=True)}
    lifetime = fields.pop("lifetime", 0)
    counts: dict[str, int] = {}
    for window in WINDOWS:
        first_bucket = (now - window.seconds) // window.bucket_seconds + 1
        total = sum(
            count for field, count in fields.items() if field[0] == window.bucket and int(field[1:]) >= first_bucket
        )
        if total:
            counts[str(window.seconds)] = total
    if lifetime:
        counts["lifetime"] = lifetime
    return counts


KINDS = ("all", "kafka-monitor", "redis-monitor", "crawler", "spider", "machine", "queue", "rest")
"""Kinds of statistics that a request may name. The schema `stats` has the same list."""

# Groups of counters and roles of processes: those that read requests, answer actions, crawl, and serve the API. The
# names are Scrapy Cluster's, whichever bus is used: fixed.
INTAKE = "kafka-monitor"
ACTIONS = "redis-monitor"
CRAWLER = "crawler"
REST = "rest"

_INTAKE_PLUGINS = {
    "crawl": "ScraperHandler",
    "action": "ActionHandler",
    "stats": "StatsHandler",
    "domain": "ZookeeperHandler",
}
"""Scrapy Cluster's plug-in under whose name a kind of request is counted: fixed."""

MAX_NAMED_DOMAINS = 1000
"""Domains listed in one spider's backlog. More make the answer larger, and it must fit on the bus."""

_SEPARATOR = "|"
"""Separates host, spider and status code in the names of the group `crawler`. Must not change: stored names have it."""


def response_counter(host: str, spider: str, code: int) -> str:
    """Return the counter of a host's responses to a spider with this status code."""
    return f"{host.replace(_SEPARATOR, '_')}{_SEPARATOR}{spider.replace(_SEPARATOR, '_')}{_SEPARATOR}{code}"


def worker_node(host: str, spider: str, name: str) -> str:
    """Return the process, in the role `crawler`, of a worker that runs this spider."""
    return f"{host.replace(_SEPARATOR, '_')}{_SEPARATOR}{spider.replace(_SEPARATOR, '_')}:{name}"


def request_counter(kind: str) -> str:
    """Return the counter of requests of this kind in the group INTAKE; it has the name of Scrapy Cluster's plug-in."""
    return f"plugins:{_INTAKE_PLUGINS.get(kind, kind)}"


async def body(frontier: ValkeyFrontier, counters: Counters, kind: str) -> dict[str, Any]:
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


async def queues(frontier: ValkeyFrontier) -> dict[str, Any]:
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
    """Return the counts of a service, those of its plug-ins (counters named `plugins:<name>`) under `plugins`."""
    found: dict[str, Any] = {}
    plugins: dict[str, dict[str, int]] = {}
    for name, windows in counts.items():
        counter, _, plugin = name.partition(":")
        if plugin:
            plugins[plugin] = windows
        else:
            found[counter] = windows
    return {**found, "plugins": plugins}


async def _spiders(counters: Counters) -> dict[str, Any]:
    """Return for each spider its number of processes, and its responses by status code and window."""
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
    """Return for each host the responses by status code and window. A host counts while a process there lives."""
    machines: dict[str, Any] = {}
    for name, windows in (await counters.read(CRAWLER)).items():
        host, _, code = name.split(_SEPARATOR)
        _sum_into(machines.setdefault(host, {}).setdefault(code, {}), windows)
    for place in await counters.nodes(CRAWLER):
        machines.setdefault(place.split(_SEPARATOR)[0], {})
    return {"count": len(machines), **machines}


def _sum_into(sums: dict[str, int], windows: dict[str, int]) -> None:
    """Add the counts of a counter, by window, to `sums`."""
    for window, number in windows.items():
        sums[window] = sums.get(window, 0) + number


_REPORT_SECONDS = 5.0
"""Time between two reports. Must stay below _HEARTBEAT_SECONDS: heartbeats go with reports."""
_HEARTBEAT_SECONDS = SILENT_SECONDS / 4
"""Time between two heartbeats: three of them may be lost before the process counts as gone. May be shorter."""


class StatsReporter:
    """Reports a worker's statistics: responses by status code, and a heartbeat for each of its spiders.

    Counts that an outage keeps back are reported after it, some of them twice if only the reply was lost.
    """

    def __init__(
        self,
        counters: Counters,
        tally: Callable[[], Tally],
        spiders: Sequence[str],
        troubles: Mapping[str, str],
        *,
        facts: Callable[[], Mapping[str, Any]] | None = None,
    ) -> None:
        """`tally`: returns the worker's counts since it started. `troubles`: its current ones, which change. `facts`:
        returns those about the process; None: it reports none."""
        self._counters = counters
        self._tally = tally
        self._host = socket.gethostname()
        worker = secrets.token_hex(6)
        self._facts, self._node = facts, f"{self._host}:{worker}"
        self._nodes = [worker_node(self._host, spider, worker) for spider in spiders]
        self._troubles = TroubleReporter(counters, self._node, troubles)
        self._reported: dict[str, int] = {}
        """Number of responses that were reported, by counter."""
        self._last_heartbeat = float("-inf")

    async def run(self) -> None:
        """Report every few seconds until cancelled. Call `close` after that."""
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
            await self._troubles.report()
            if self._facts is not None:
                await self._counters.report_facts(self._node, self._facts())
            await self._counters.add(CRAWLER, {name: count for name, count in new.items() if count})
        except FrontierError:
            return
        self._reported = counts

    async def close(self) -> None:
        """Report for the last time."""
        await self.report()
        with contextlib.suppress(FrontierError):
            await self._troubles.withdraw()
            if self._facts is not None:
                await self._counters.report_facts(self._node, None)
