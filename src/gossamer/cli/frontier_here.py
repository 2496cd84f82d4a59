"""The frontier of a command that asks about crawls: the named one, the one that runs, or that of the data directory.

The frontier is the store of requests. Fixed: that of the data directory is started only where no process runs it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

from gossamer.cli import terminal
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model import DATA_DIR
from gossamer.settings import Settings
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import connect, frontier_address

T = TypeVar("T")


@asynccontextmanager
async def frontier_here(settings: Settings, *, name: str) -> AsyncIterator[ValkeyFrontier]:
    """Connect to the named or running frontier; else start that of the data directory for the time of the context.

    `name`: this command, as the lock of the data directory names it. Raises BadInput where there is no such directory.
    """
    address = settings.frontier or running_address(settings.data_dir)
    if not address and not settings.data_dir.exists():
        raise BadInput(no_crawl_with(settings.data_dir))
    async with AsyncExitStack() as stack:
        if not address:
            address = await stack.enter_async_context(frontier_address(settings, name=name))
        frontier = await connect(settings, address)
        stack.push_async_callback(frontier.close)
        yield frontier


def no_crawl_with(data_dir: Path) -> str:
    """Return the message where no crawl was started with the data directory."""
    place = "in this folder" if data_dir == Path(DATA_DIR) else f"with the data directory {data_dir}"
    return f"no crawl was started {place}. Go to its folder, name another directory with --data-dir, or a --frontier."


async def with_frontier(settings: Settings, call: Callable[[ValkeyFrontier], Awaitable[T]]) -> T:
    """Return what `call` returns of the frontier that the settings name, or that is in the data directory."""
    with Interruption(drain=None, show=terminal.say):  # the first Ctrl-C cancels the call
        async with frontier_here(settings, name="gossamer crawls") as frontier:
            return await call(frontier)
