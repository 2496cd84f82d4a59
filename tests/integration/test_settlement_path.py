"""A settlement takes the way that the documentation names, of at most seven hops, on each kind of server."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CoroutineType
from typing import Any

import pytest

from gossamer.commit.committer import Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.commands import SCRIPTS
from gossamer.model.crawl import DomainPolicy, Terms
from gossamer.model.request import Batch, Outcome, Settlement
from gossamer.sinks.base import Fanout
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.connection import ValkeyConnection
from tests.servers import crawls
from tests.servers.valkey import Cluster, Server, cluster, standalone

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
DOMAINS = [f"d{number}.test" for number in range(12)]
MOST_HOPS = 7


@contextlib.contextmanager
def mirrored() -> Iterator[Cluster]:
    with cluster(primaries=1, replicas=1) as nodes:
        yield nodes


def documented() -> list[str]:
    """What the listing of the page names, the committer first."""
    (listing,) = re.findall(r"```text\n(Committer\._settle_on .*?)```", PAGE.read_text(), re.DOTALL)
    return re.findall(r"(?m)^(?: ?\d )?([\w.]+)  ", listing)


def frames(coroutine: Any) -> list[str]:
    """The coroutines that wait for each other, from this one to the one that waits for a reply."""
    found = []
    while isinstance(coroutine, CoroutineType):
        found.append(coroutine.__qualname__)
        coroutine = coroutine.cr_await
    return found


@pytest.mark.parametrize(("servers", "shards"), [(standalone, 1), (standalone, 5), (mirrored, 5)])
async def test_a_settlement_takes_the_documented_hops(
    servers: Callable[[], contextlib.AbstractContextManager[Server | Cluster]], shards: int
) -> None:
    with servers() as server:
        frontier = await ValkeyFrontier.connect(server.address, shards=shards)
        await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        run = await crawls.open_crawl(frontier, [f"https://{domain}/" for domain in DOMAINS], Terms())
        holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        leases = []
        while len(leases) < len(DOMAINS):
            leases += await holder.lease(limit=100)
        committer = Committer(frontier, holder, Fanout([]), Retrier(Troubles()))
        for number, lease in enumerate(leases):
            link = Batch("link", lease.domain, 0, 1, [f"https://{lease.domain}/x"], [number])
            await committer.put(FinishedLease(Settlement(lease, Outcome.FETCHED), batches=[link]))
        committer.stop_lingering()
        running = asyncio.create_task(committer.run())
        ways = set()
        while committer.pending:
            await asyncio.sleep(0)  # the next turn of the event loop
            for task in asyncio.all_tasks():
                way = frames(task.get_coro())
                if "ShardSession.settle" in way and way[-1] == "Shards.call":
                    ways.add(tuple(way[way.index("Committer._settle_on") :]))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert (await crawls.info(frontier)).total().fetched == len(DOMAINS)
        await holder.close()
        await frontier.close()
    *waiting, send, script = documented()
    assert ways == {tuple(waiting)}, run
    assert send == ValkeyConnection.send.__qualname__
    assert script.removesuffix(".lua") in SCRIPTS.names()
    assert len(waiting) + 2 - 1 <= MOST_HOPS
