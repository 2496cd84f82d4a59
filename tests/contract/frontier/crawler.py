"""A worker in this process that crawls the little web and repeats what was not answered, as the lanes do."""

import asyncio
import contextlib
from collections import Counter

from gossamer.commit.retrier import Retrier
from gossamer.commit.worker_session import WorkerSession
from gossamer.errors import FrontierForgot
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.connection import retrying

from .asking import a_batch, of_living
from .graph import links, url


class Crawler:
    """Counts what it did with every page. `progress` is set at every step."""

    def __init__(
        self, frontier: ValkeyFrontier, crawl: CrawlId, progress: asyncio.Event, *, dead_after_seconds: float
    ) -> None:
        self._frontier = frontier
        self._crawl = crawl
        self._progress = progress
        self._dead_after_seconds = dead_after_seconds
        self.recorded: Counter[int] = Counter()
        """How often a page was durable, as a sink would see it."""
        self.settled: list[int] = []

    async def run(self) -> None:
        """Until the crawl has finished."""
        holder = await self._frontier.open_leaseholder(pool="shared", spiders=["link"])
        retrier = Retrier(Troubles())
        seat = WorkerSession(self._frontier, holder, retrier, dead_after_seconds=self._dead_after_seconds)
        keeping = asyncio.create_task(seat.run())
        while (info := await retrying(lambda: self._frontier.crawl_info(self._crawl))) is None or (
            info.state is CrawlState.RUNNING
        ):
            await self._step(holder)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await holder.close()

    async def _step(self, holder: ValkeyLeaseholder) -> None:
        leases = await retrying(lambda: holder.lease(limit=8))
        self.recorded.update(page_of(lease) for lease in leases)
        await retrying(lambda: self._settle(holder, leases))
        self.settled += [page_of(lease) for lease in of_living(holder, leases)]
        self._progress.set()
        if not leases:
            await holder.wait_for_work(timeout_seconds=1.0)

    async def _settle(self, holder: ValkeyLeaseholder, leases: list[Lease]) -> None:
        """As a committer does: what the frontier may have forgotten since it took the links is added again."""
        while True:
            data_epoch = self._frontier.data_epoch
            for lease in leases:
                await retrying(lambda lease=lease: self._follow(lease))  # type: ignore[misc]
            with contextlib.suppress(FrontierForgot):
                await holder.settle([Settlement(lease, Outcome.FETCHED) for lease in leases], data_epoch=data_epoch)
                return

    async def _follow(self, lease: Lease) -> None:
        found = [url(page) for page in links(page_of(lease))]
        await self._frontier.add(lease.run, lease.terms, [a_batch(domain, [path]) for domain, path in found])


def page_of(lease: Lease) -> int:
    return int(lease.url.rpartition("/")[2])
