"""Measures the cost of a lease with a million ready domains, compared with a thousand."""

import random
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from bench.errors import BenchFailed
from bench.frontier.load import LEASES_A_CALL, SPIDER, Load, calls
from bench.frontier.stage import Clock, Stage, stage
from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.request import Batch, Outcome, Settlement

_PROMISED = 1.5
_CALLS_A_ROUND = {1: 512, LEASES_A_CALL: 3}
"""By the size of a lease: together they take from most of the smaller frontier's domains, once from each. Asking the
server what it used costs as much as a small lease, so that is done once a round."""


@dataclass
class _Side:
    """One of the two frontiers."""

    domains: int
    it: Stage
    clock: Clock
    holder: ValkeyLeaseholder
    server: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in _CALLS_A_ROUND})
    """Microseconds of the server's CPU for each request leased, by the size of the lease, round by round."""
    client: dict[int, list[float]] = field(default_factory=lambda: {size: [] for size in _CALLS_A_ROUND})

    async def round(self, size: int) -> None:
        """Leases requests of domains that are all ready; settling is not counted."""
        self.clock.seconds += 2.0
        server_before, client_before = await self.it.main_thread_seconds(), time.process_time()
        found = [await self.holder.lease(limit=size) for _ in range(_CALLS_A_ROUND[size])]
        client = time.process_time() - client_before
        server = await self.it.main_thread_seconds() - server_before
        for leases in found:
            if len(leases) != size:
                raise BenchFailed(f"{size} domains should have been ready, {len(leases)} were")
            await self.holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        leased = size * _CALLS_A_ROUND[size]
        self.server[size].append(server / leased * 1e6)
        self.client[size].append(client / leased * 1e6)


async def measure_leases(*, few: int, many: int, rounds: int) -> list[Figure]:
    """Both at once, in turns; each ready domain gives one request at a time, and has more."""
    say(f"frontier: leases with {few:,} and with {many:,} ready domains")
    async with AsyncExitStack() as stack:
        sides = [await _side(stack, domains, rounds) for domains in (few, many)]
        for _ in range(rounds):
            for size in _CALLS_A_ROUND:
                for side in sides:
                    await side.round(size)
        small, large = sides
        figures = []
        for size in _CALLS_A_ROUND:
            what = f"a lease of {size} of {{:,}} ready domains, each request: {{}}"
            for side in sides:
                for name, costs in (("server", side.server), ("client", side.client)):
                    figures.append(Figure(what.format(side.domains, name), quantile(costs[size], 0.5), "CPU-us"))
            ratio = _ratio(large, small, size)
            figures.append(Figure(f"… {many:,} against {few:,}, leases of {size}", ratio, "times", f"{_PROMISED}"))
    return figures


def _ratio(large: _Side, small: _Side, size: int) -> float:
    """In the middle of the rounds, of server and client together."""
    totals = [
        [server + client for server, client in zip(side.server[size], side.client[size], strict=True)]
        for side in (large, small)
    ]
    return quantile(totals[0], 0.5) / quantile(totals[1], 0.5)


async def _side(stack: AsyncExitStack, domains: int, rounds: int) -> _Side:
    """Every domain has enough to stay ready: at most one a size and round is taken, and where there are many domains
    all have their turn first."""
    leased = rounds * sum(size * count for size, count in _CALLS_A_ROUND.items())
    each = min(rounds * len(_CALLS_A_ROUND), 2 * (leased // domains) + 1) + 1
    clock = Clock()
    it = await stack.enter_async_context(stage(clock=clock))
    run = await it.frontier.open_crawl(Crawl(id=CrawlId("bench", f"leases-{domains}")))
    load = Load(it.frontier.secret)
    for call in calls(_batches(load, domains, each)):
        await it.frontier.add(run, Terms(), call)
    holder = await it.frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
    stack.push_async_callback(holder.close)
    await it.at_rest()
    return _Side(domains, it, clock, holder)


def _batches(load: Load, domains: int, each: int) -> Iterator[Batch]:
    # In an order of their own, as they would be found: neighbours by name are not neighbours in memory.
    numbers = list(range(domains))
    random.Random(domains).shuffle(numbers)
    for number in numbers:
        yield load.batch(number, range(each))
