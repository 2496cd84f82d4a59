"""Measures how soon an idle worker gets a request that a client submits."""

import asyncio
import time

from bench.frontier.load import SPIDER, Load
from bench.frontier.stage import stage
from bench.progress import say
from bench.results import Figure
from bench.statistics import quantile
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.model.request import Lease, Outcome, Settlement

_IDLE_SECONDS = 0.02
"""Long enough for the worker to have asked in vain and to wait."""


async def measure_wake(*, rounds: int) -> list[Figure]:
    """From before `add` until the lease is there; worker and submitter have connections of their own."""
    say("frontier: waking an idle worker")
    delays = []
    async with stage() as it:
        load = Load(it.frontier.secret)
        submitter = await ValkeyFrontier.connect(it.address)
        holder = await it.frontier.open_leaseholder(pool="shared", spiders=[SPIDER])
        try:
            for number in range(rounds):
                run = await submitter.open_crawl(Crawl(id=CrawlId("bench", f"wake-{number}")))
                waiting = asyncio.create_task(_next(holder))
                await asyncio.sleep(_IDLE_SECONDS)
                began = time.perf_counter()
                await submitter.add(run, Terms(maxdepth=0), [load.batch(number, [0])], seeds=True)
                leases, arrived = await waiting
                delays.append(arrived - began)
                await holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases])
        finally:
            await holder.close()
            await submitter.close()
    return [
        Figure("waking an idle worker: median", quantile(delays, 0.5) * 1000, "ms"),
        Figure("waking an idle worker: p99", quantile(delays, 0.99) * 1000, "ms", "50"),
    ]


async def _next(holder: ValkeyLeaseholder) -> tuple[list[Lease], float]:
    while True:
        leases = await holder.lease(limit=1)
        if leases:
            return leases, time.perf_counter()
        await holder.wait_for_work(timeout_seconds=10.0)
