"""Runs the work of commands in an event loop, and calls to a running cluster."""

import asyncio
import ctypes
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gossamer.cli import terminal
from gossamer.cli.terminal import Interruption
from gossamer.crawling.background import loop_factory
from gossamer.errors import BadInput, BusUnavailable, FrontierUnavailable
from gossamer.policy.retry import retry_delay
from gossamer.policy.words import counted
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import known_crawls

if TYPE_CHECKING:
    from gossamer.wiring.service import ServiceContext


T = TypeVar("T")


def ask(settings: Settings, question: "Callable[[ServiceContext], Coroutine[Any, Any, T]]") -> T:
    """Return what `question` returns about the running cluster: the one at --frontier, or in the data directory. Raises
    BadInput where none runs."""
    logs.set_up(settings.log_level, style=settings.log_format)

    async def connect_and_ask() -> T:
        with Interruption(drain=None, show=terminal.say):  # the first Ctrl-C cancels the question
            async with _cluster(settings) as context:
                return await question(context)

    return run(connect_and_ask())


@asynccontextmanager
async def _cluster(settings: Settings) -> "AsyncIterator[ServiceContext]":
    """Connect to the running cluster. Raises BadInput where none runs."""
    # Imported late: `gossamer crawl` needs none of the services.
    from gossamer.wiring.service import open_service

    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        known = len(known_crawls(settings.data_dir))
        raise BadInput(
            f"no crawl and no service is running with the data directory {settings.data_dir}. "
            + (f"`gossamer crawls list` shows the {counted(known, 'crawl')} of that directory. " if known else "")
            + "Start one there (`gossamer up` starts a service), or name a shared frontier with --frontier."
        )
    async with open_service(settings, address) as context:
        yield context


# Pauses between attempts to reach a server; each is about twice the one before. Longer ones delay the start after an
# outage.
_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0

_NO_SERVICE = "Waiting for it; until then, no requests are accepted."


async def when_reachable(
    name: str, call: Callable[[], Awaitable[T]], say: Callable[[str], None], *, effect: str = _NO_SERVICE
) -> T:
    """Repeat the call until the frontier or the bus (`name`, in messages) can be reached, and return its result.

    An outage is shown at once, with its `effect`. Other errors are raised: waiting does not mend a wrong password or an
    unsuitable server.
    """
    troubles = Troubles(say)
    failures = 0
    while True:
        try:
            result = await call()
        except (FrontierUnavailable, BusUnavailable) as error:
            troubles.begin(name, f"{str(error).rstrip('.')}. {effect}")
        else:
            troubles.end(name, f"The {name} can be reached now.")
            return result
        failures += 1
        await asyncio.sleep(
            retry_delay(
                failures,
                random=random.random(),
                base_seconds=_FIRST_PAUSE_SECONDS,
                cap_seconds=_LONGEST_PAUSE_SECONDS,
            )
        )


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt(3): fixed
_KEPT_BYTES = 32 * 1024 * 1024
"""Freed memory that glibc keeps for the next page. Less costs CPU time; more costs memory."""
_COLLECT_AFTER = (50_000, 20, 20)
"""Arguments of `gc.set_threshold`. Pages create many objects but hardly any cycles; looking for cycles at Python's
default interval takes a tenth of the CPU time. Larger numbers let cycles occupy memory for longer."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop and return its result."""
    gc.freeze()  # what is loaded now stays; the collector need not look at it
    gc.set_threshold(*_COLLECT_AFTER)
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory. By default it returns the memory of each parsed page to the kernel and asks for it
    again, and clearing it takes a tenth of the CPU time. With other C libraries nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
