"""Where a run keeps its frontier. What a run may do to it is what the store offers; nothing else knows its topology."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from tests.chaos.schedule import Fault, Kind
from tests.chaos.tcp_proxy import Link, Network
from tests.servers.faked_clock import FakedClock
from tests.servers.valkey import Server, standalone


class Store(Protocol):
    """A running one."""

    kinds: frozenset[Kind]
    """Faults that `inflict` knows."""

    @property
    def address(self) -> str:
        """For the harness: never through a link."""
        ...

    def way(self) -> tuple[str, Link]:
        """An address for one more worker, and the link that it leads through."""

    async def recovered(self) -> None:
        """Until it can bear the next fault."""

    async def inflict(self, fault: Fault) -> None:
        """Do it, and return when it is over and the store serves again."""

    def check(self) -> list[str]:
        """What is wrong with it at the end of a run."""


class SingleStore:
    """One server with an append-only file. Its clock can be set where libfaketime is installed."""

    kinds = frozenset({Kind.KILL_STORE, Kind.FREEZE_STORE, *([Kind.SET_STORE_CLOCK] if FakedClock.library else [])})

    def __init__(self, server: Server, network: Network) -> None:
        self._server = server
        self._network = network

    @property
    def address(self) -> str:
        return self._server.address

    def way(self) -> tuple[str, Link]:
        link = self._network.link()
        return f"redis://127.0.0.1:{link.port}", link

    async def recovered(self) -> None:
        return

    async def inflict(self, fault: Fault) -> None:
        if fault.kind is Kind.KILL_STORE:
            await asyncio.to_thread(self._server.kill)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(self._server.start)
        elif fault.kind is Kind.FREEZE_STORE:
            os.kill(self._server.pid, signal.SIGSTOP)
            await asyncio.sleep(fault.seconds)
            os.kill(self._server.pid, signal.SIGCONT)
        elif fault.kind is Kind.SET_STORE_CLOCK and self._server.clock is not None:
            self._server.clock.set(fault.seconds)
        else:
            raise ValueError(fault.kind)

    def check(self) -> list[str]:
        return []


Opener = Callable[[Path, str], contextlib.AbstractAsyncContextManager[Store]]
"""(folder for its files, appendfsync) -> a running store."""


@contextlib.asynccontextmanager
async def single(folder: Path, fsync: str) -> AsyncIterator[Store]:
    """One server, its append-only file under `folder`; stopped afterwards."""
    options = {"appendfsync": fsync, "dir": str(folder)}
    faked = bool(FakedClock.library)
    with (
        standalone(tcp=True, options=options, faked_clock=faked) as server,
        Network("127.0.0.1", server.port) as network,
    ):
        yield SingleStore(server, network)
