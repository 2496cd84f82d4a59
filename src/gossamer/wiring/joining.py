"""How a process comes to its frontier: an address, and a connection to it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.settings import Settings
from gossamer.valkey.checks import MEMORY_ONLY
from gossamer.valkey.embedded import EmbeddedValkey


@asynccontextmanager
async def frontier_address(
    settings: Settings, *, name: str, on_trouble: Callable[[str], None] | None = None
) -> AsyncIterator[str]:
    """Where the frontier is. An embedded server lives as long as the context; `name` is shown to whoever finds it."""
    if settings.frontier:
        yield settings.frontier
        return
    server = EmbeddedValkey(settings.data_dir, name=name, appendfsync=settings.embedded.fsync, on_trouble=on_trouble)
    await server.start()
    supervision = asyncio.create_task(server.supervise())
    try:
        yield server.address
    finally:
        supervision.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await supervision
        await server.stop()


async def connect(settings: Settings, address: str) -> ValkeyFrontier:
    """Join the frontier there. Raises FrontierUnavailable, FrontierIncompatible, BadInput."""
    return await ValkeyFrontier.connect(
        address,
        prefix=settings.prefix,
        shards=settings.shards,
        heartbeat_seconds=settings.worker.heartbeat,
        retention_seconds=settings.retention,
        mark_seconds=settings.marks,
    )


def warn_of_memory_only(frontier: ValkeyFrontier, say: Callable[[str], None]) -> None:
    """Warn a person of each server that keeps nothing on disk."""
    for server in frontier.memory_only_servers:
        say(f"{server} {MEMORY_ONLY}.")
