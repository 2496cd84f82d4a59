"""The running cluster, for commands that ask or tell it something."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from gossamer.cli import standard
from gossamer.cli.interruption import Interruption
from gossamer.cli.running import run as run_loop
from gossamer.errors import BadInput, BusUnavailable, FrontierUnavailable
from gossamer.policy.retry import retry_delay
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.datadir import running_address
from gossamer.wiring.service import ServiceContext, open_service

T = TypeVar("T")


def ask(settings: Settings, question: Callable[[ServiceContext], Coroutine[Any, Any, T]]) -> T:
    """The answer of the cluster that is named (--frontier) or runs with this data directory."""
    logs.set_up(settings.log_level, style=settings.log_format)

    async def asked() -> T:
        with Interruption(None, standard.say):
            async with cluster(settings) as found:
                return await question(found)

    return run_loop(asked())


@asynccontextmanager
async def cluster(settings: Settings) -> AsyncIterator[ServiceContext]:
    """Its parts. Raises BadInput where nothing runs."""
    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        raise BadInput(
            f"no crawl and no service is running with the data directory {settings.data_dir}. Ask while one is running "
            "there (`gossamer up` starts a service), or name a shared frontier with --frontier"
        )
    async with open_service(settings, address) as found:
        yield found


_FIRST_SECONDS = 0.25
_LONGEST_SECONDS = 5.0


async def arrived(name: str, call: Callable[[], Awaitable[T]], say: Callable[[str], None]) -> T:
    """The call's answer, once the frontier or the bus (`name`, in the sentences) can be reached. That it cannot is said
    at once; the pauses grow from 0.25 to 5 s. Raises whatever else the call raises: a wrong password or a server that
    does not suit does not pass by waiting."""
    troubles = Troubles(say)
    failures = 0
    while True:
        try:
            answer = await call()
        except (FrontierUnavailable, BusUnavailable) as error:
            troubles.begin(name, f"{str(error).rstrip('.')}. Waiting until it is there; nothing is accepted before.")
        else:
            troubles.end(name, f"The {name} is there.")
            return answer
        failures += 1
        await asyncio.sleep(
            retry_delay(failures, random=random.random(), base_seconds=_FIRST_SECONDS, cap_seconds=_LONGEST_SECONDS)
        )
