"""The running cluster, for commands that ask or tell it something."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from gossamer.cli import standard
from gossamer.cli.interruption import Interruption
from gossamer.cli.loop import run as run_loop
from gossamer.errors import BadInput
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.valkey.datadir import running
from gossamer.wiring.service import Parts, parts

T = TypeVar("T")


def ask(settings: Settings, question: Callable[[Parts], Coroutine[Any, Any, T]]) -> T:
    """The answer of the cluster that is named (--frontier) or runs with this data directory."""
    logs.set_up(settings.log_level, form=settings.log_format)

    async def asked() -> T:
        with Interruption(None, standard.say):
            async with cluster(settings) as found:
                return await question(found)

    return run_loop(asked())


@asynccontextmanager
async def cluster(settings: Settings) -> AsyncIterator[Parts]:
    """Its parts. Raises BadInput where nothing runs."""
    address = settings.frontier or running(settings.data_dir)
    if not address:
        raise BadInput(
            f"no crawl and no service is running with the data directory {settings.data_dir}. Ask while one is running "
            "there (`gossamer up` starts a service), or name a shared frontier with --frontier"
        )
    async with parts(settings, address) as found:
        yield found
