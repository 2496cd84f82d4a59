"""Where a frontier is tried: a server, some shards on it, a clock, and replies that may be lost."""

from itertools import count
from typing import Any

from gossamer.errors import FrontierUnavailable
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Cluster, Server

from .observer import StepObserver
from .pair import Clock, Pair

_numbers = count()


class LossyConnection:
    """Connections to shards which lose a reply when told to: the call is carried out and nobody learns of it."""

    def __init__(self, shards: Shards | StepObserver) -> None:
        self._shards = shards
        self.countdown: int | None = None
        """So many replies arrive before one is lost. None: all arrive."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shards, name)

    def _perhaps_lose(self) -> None:
        if self.countdown is None:
            return
        if self.countdown == 0:
            self.countdown = None
            raise FrontierUnavailable("the reply was lost")
        self.countdown -= 1

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        reply = await self._shards.call(shard, script, *arguments, **options)
        self._perhaps_lose()
        return reply


class Stage:
    """One frontier of so many shards under a prefix of its own."""

    def __init__(self, server: Server | Cluster, shards: int) -> None:
        self.server = server
        self.shards = shards
        self.prefix = f"t{next(_numbers)}"
        self.connections: list[LossyConnection] = []
        self.frontiers: list[ValkeyFrontier] = []
        self._observers: list[StepObserver] = []

    async def frontier(self, *, observer: StepObserver | None = None, **options: Any) -> ValkeyFrontier:
        """Another client of the same frontier. `observer`: sees every script that it runs."""
        shards = await Shards.connect(self.server.address)
        connection = LossyConnection(shards if observer is None else observer.watch(shards))
        try:
            frontier = await ValkeyFrontier.from_connection(
                connection,  # type: ignore[arg-type]
                prefix=self.prefix,
                **({"shards": self.shards} | options),
            )
        except BaseException:
            await shards.close()
            raise
        self.connections.append(connection)
        if observer is not None:
            self._observers.append(observer)
        for one in self._observers:
            one.alone = len(self.connections) == 1
        self.frontiers.append(frontier)
        return frontier

    async def pair(self, *, dead_after_seconds: float = 10.3, **options: Any) -> Pair:
        """A frontier beside its model, both on one clock that stands still until it is told to go on."""
        clock = Clock()
        observer = StepObserver()
        frontier = await self.frontier(dead_after_seconds=dead_after_seconds, clock=clock, observer=observer, **options)
        connection = self.connections[-1]

        def lose(nth: int | None) -> None:
            connection.countdown = nth

        return Pair(frontier, clock, dead_after_seconds=dead_after_seconds, shards=self.shards, lose=lose)

    async def flush_scripts(self) -> None:
        """As after a restart or a failover: no server knows any script."""
        await self.connections[0].everywhere("SCRIPT", "FLUSH")

    async def kill_server(self) -> None:
        """SIGKILL, and a start from what is on disk."""
        assert isinstance(self.server, Server)
        self.server.kill()
        self.server.start()

    async def keys(self) -> dict[str, int]:
        """All keys of this frontier with their time to live in milliseconds (-1: no end)."""
        found: dict[str, int] = {}
        connection = self.connections[0]
        for shard in range(self.shards):
            base = f"{self.prefix}:{{{shard}}}:"
            cursor = b"0"
            while True:
                cursor, page = await connection.command(
                    base, "SCAN", cursor, "MATCH", f"{self.prefix}:*", "COUNT", "1000"
                )
                for key in page:
                    if key.startswith(base.encode()):
                        found[key.decode()] = await connection.command(key.decode(), "PTTL", key)
                if cursor == b"0":
                    break
        return found

    async def check_nothing_stays(self, pair: Pair) -> None:
        """After the retention of the last crawl nothing is left but what the frontier says has no end."""
        for domain in list(pair.model.politeness.policies):
            await pair.set_policy(domain, None)
        await pair.set_policy(None, None)
        for worker in list(pair.seats):
            await pair.close(worker)
        pair.clock.now += 31 * 86400
        await pair.frontier.maintain()
        endless = {"meta", "n", "policy", "egresses"}
        stays = {key for key, ttl in (await self.keys()).items() if ttl == -1}
        stays = {key for key in stays if key.split("}:")[1] not in endless}
        assert stays == set(), f"without an end: {sorted(stays)}"

    async def leave(self, pair: Pair | None = None) -> None:
        """Close what was opened and forget everything."""
        if pair is not None:
            pair.lose_reply(None)
            for seat in list(pair.seats.values()):
                await seat.close()
        await self.connections[0].everywhere("FLUSHALL")
        for frontier in self.frontiers:
            await frontier.close()
