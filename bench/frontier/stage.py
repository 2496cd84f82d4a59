"""A frontier to measure, and the CPU time, memory and keys of its server."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from bench import measure
from bench.errors import BenchFailed
from bench.store import disk_folder, embedded
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.valkey.embedded import EmbeddedValkey
from gossamer.valkey.shards import Shards

_FREEING_SECONDS = 60.0


class Clock:
    """Clock of the frontier that goes on only when a benchmark sets it, so that every domain is ready."""

    def __init__(self) -> None:
        self.seconds = 1_800_000_000.0

    def __call__(self) -> float:
        return self.seconds


class Stage:
    """One server with one frontier of one shard on it."""

    def __init__(self, address: str, pid: int, frontier: ValkeyFrontier, shards: Shards) -> None:
        self.address = address
        self.frontier = frontier
        self._pid = pid
        self._shards = shards

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the server since its start, with those for rewriting its file."""
        return measure.cpu_seconds(self._pid)

    async def main_thread_seconds(self) -> float:
        """Return the CPU seconds of the server's main thread since its start, without work in the background."""
        facts = await self._info("cpu")
        return float(facts["used_cpu_user_main_thread"]) + float(facts["used_cpu_sys_main_thread"])

    async def at_rest(self) -> None:
        """Wait until the server rewrites no file beside its work."""
        while True:
            facts = await self._info("persistence")
            if facts["aof_rewrite_in_progress"] == facts["aof_rewrite_scheduled"] == "0":
                return
            await asyncio.sleep(0.1)

    async def rewrite(self) -> None:
        """Rewrite the server's file, so that it has only what is there now, and wait for the end."""
        await self._shards.command("{0}", "BGREWRITEAOF")
        await self.at_rest()

    async def memory_bytes(self) -> int:
        """Return the memory of the server, after it has freed in the background what is not used."""
        last = asyncio.get_running_loop().time() + _FREEING_SECONDS
        while True:
            facts = await self._info("memory")
            if not int(facts["lazyfree_pending_objects"]):
                return int(facts["used_memory"])
            if asyncio.get_running_loop().time() > last:
                raise BenchFailed("the server does not come to an end of freeing memory")
            await asyncio.sleep(0.02)

    async def keys(self) -> int:
        """Return the number of keys."""
        return int(await self._shards.command("{0}", "DBSIZE"))

    async def _info(self, section: str) -> dict[str, str]:
        text = (await self._shards.command("{0}", "INFO", section)).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


@asynccontextmanager
async def stage(
    *, retention_seconds: float = 86400.0, clock: Callable[[], float] | None = None
) -> AsyncIterator[Stage]:
    """Start a server with a frontier, and stop it however the block ends. `clock`: epoch seconds, instead of the
    server's own time."""
    with disk_folder() as folder:
        async with embedded(folder, durable=True) as server, staged(server, retention_seconds, clock) as it:
            yield it


@asynccontextmanager
async def staged(
    server: EmbeddedValkey, retention_seconds: float = 86400.0, clock: Callable[[], float] | None = None
) -> AsyncIterator[Stage]:
    """Connect to a server that is started, and disconnect however the block ends."""
    shards = await Shards.connect(server.address)
    frontier = await ValkeyFrontier.connect(server.address, retention_seconds=retention_seconds, clock=clock)
    try:
        yield Stage(server.address, server.pid, frontier, shards)
    finally:
        await frontier.close()
        await shards.close()
