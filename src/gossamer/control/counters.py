"""Counters over time windows, shared by all processes: buckets of time in the frontier's server, no threads."""

import asyncio
from collections.abc import Callable, Mapping
from importlib import resources

from gossamer.valkey.scripts import Script, load
from gossamer.valkey.shards import Shards

_SCRIPTS: dict[str, Script] = load(resources.files("gossamer.control") / "scripts")

WINDOWS: tuple[tuple[int, str, int], ...] = (
    (900, "m", 60),
    (3600, "m", 60),
    (6 * 3600, "q", 900),
    (12 * 3600, "q", 900),
    (24 * 3600, "q", 900),
    (7 * 24 * 3600, "h", 3600),
)
"""(seconds, which buckets, their seconds): Scrapy Cluster's windows. A window is exact to one of its buckets."""

LIFE_SECONDS = 30 * 86400
"""A counter that nobody raised for so long is forgotten, its lifetime count too."""

SILENT_SECONDS = 120
"""A process that said nothing for so long is gone; Scrapy Cluster's HEARTBEAT_TIMEOUT."""


class Counters:
    """Counts by group (`kafka-monitor`, `crawler` ...) and name. Raises FrontierUnavailable when its server is away.

    Keys: `{prefix:stats:group}` and `{prefix:stats:group}:name`, which live for LIFE_SECONDS after the last change;
    `{prefix:nodes:role}`, for SILENT_SECONDS.
    """

    def __init__(self, shards: Shards, *, prefix: str, clock: Callable[[], float] | None = None) -> None:
        """`clock` (epoch seconds) stands in for the server's own, for tests only."""
        self._shards = shards
        self._prefix = prefix
        self._clock = clock

    async def add(self, group: str, counts: Mapping[str, int]) -> None:
        """Raise counters. Not to be repeated after an error: it may have been done."""
        if counts:
            pairs = [part for pair in counts.items() for part in pair]
            await self._call("count", self._group(group), LIFE_SECONDS, *pairs)

    async def read(self, group: str) -> dict[str, dict[str, int]]:
        """Each counter's count by window (seconds, as text) and `lifetime`; a window without any is left out."""
        now, rows = await self._call("tallied", self._group(group))
        return {rows[at].decode(): _windows(rows[at + 1], now) for at in range(0, len(rows), 2)}

    async def beat(self, role: str, node: str) -> None:
        """This process (`host:id`) lives."""
        await self._call("beat", self._role(role), SILENT_SECONDS, node)

    async def nodes(self, role: str) -> dict[str, list[str]]:
        """The processes of a role that live: by host, their ids."""
        found: dict[str, list[str]] = {}
        for node in await self._call("beat", self._role(role), SILENT_SECONDS, ""):
            host, _, name = node.decode().rpartition(":")
            found.setdefault(host, []).append(name)
        return found

    async def all_nodes(self, roles: tuple[str, ...]) -> dict[str, dict[str, list[str]]]:
        """`nodes` of several roles."""
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
