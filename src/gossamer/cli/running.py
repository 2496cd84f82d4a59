"""Runs workers to their end: in this process, or in several under this one, with signals and progress."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.cli.display import Display, Snapshot, counted
from gossamer.cli.interruption import Interruption
from gossamer.errors import FrontierError, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Run
from gossamer.model.info import CrawlInfo
from gossamer.settings import Settings
from gossamer.sinks.open import missing_folders
from gossamer.telemetry import names
from gossamer.telemetry.tally import Tally
from gossamer.wiring.parts import working
from gossamer.wiring.processes import Processes

log = logging.getLogger("gossamer")

REFRESH_SECONDS = 0.5


@dataclass(slots=True)
class Worked:
    """What came of it."""

    tally: Tally
    fault: str = ""
    """Why an output is not finished; its records are kept until it can be."""


class Crew(Protocol):
    """Whoever does the work: a worker or several processes."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    def tally(self) -> Tally: ...


async def work(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    display: Display,
    interruption: Interruption,
    *,
    pool: str,
    spiders: Sequence[str] = (),
    run: Run | None = None,
    bus: bool = False,
) -> Worked:
    """Until the run is over (None: for ever) or interrupted. Raises GossamerError before anything is fetched.

    `bus`: pages go to the bus of the settings.
    """
    crawl = run.crawl.id if run else None
    shown = settings.worker.metrics
    for folder in missing_folders(settings.crawl.output):
        display.say(f"There is no folder {folder}; it is made for the output.")
    if settings.worker.processes > 1 or bus:
        crew = Processes(settings, address, pool=pool, spiders=list(spiders), run=run, say=display.say, bus=bus)
        with _measured(shown, crew, frontier):
            return Worked(await _attend(crew, frontier, display, interruption, crawl), crew.fault)
    worked: Worked | None = None
    try:
        async with working(settings, frontier, pool=pool, spiders=spiders, run=run, say=display.say) as worker:
            with _measured(shown, worker, frontier):
                worked = Worked(await _attend(worker, frontier, display, interruption, crawl))
    except SinkError as error:
        if worked is None:
            raise
        worked.fault = error.detail
    return worked


@contextlib.contextmanager
def _measured(address: str, crew: Crew, frontier: ValkeyFrontier) -> Iterator[None]:
    """Show to Prometheus what the crew has done, where that is asked for."""
    if not address:
        yield
        return
    from gossamer.telemetry.metrics import Metrics  # who shows none need not load its library

    metrics = Metrics()
    metrics.watch_tally(crew.tally)
    metrics.watch_lost_shards(lambda: frontier.lost_shards)
    with metrics.served(address):
        yield


async def _attend(
    crew: Crew, frontier: ValkeyFrontier, display: Display, interruption: Interruption, crawl: CrawlId | None
) -> Tally:
    interruption.drain = crew.stop
    at_once = False
    watching = asyncio.create_task(_watch(crew, frontier, display, crawl))
    try:
        await crew.run()
    except asyncio.CancelledError:
        if not interruption.met:
            raise
        asyncio.current_task().uncancel()  # type: ignore[union-attr]
        at_once = True
        display.say("Stopped at once; what was under way will be fetched again.")
    except BaseExceptionGroup as group:
        if group.subgroup(OutputClosed) is None:
            raise
        interruption.met = True
        display.say("Nobody reads the output any more: stopped; what was not written is still in the frontier.")
    finally:
        interruption.ending()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    tally = crew.tally()
    if tally.given_up and not at_once:
        pages, they = counted(tally.given_up, "page"), "it is" if tally.given_up == 1 else "they are"
        display.say(f"{pages} could not be finished; nothing is lost, {they} fetched again when the crawl goes on.")
        interruption.hurry()  # what takes nothing may not let itself be closed either
    return tally


async def _watch(crew: Crew, frontier: ValkeyFrontier, display: Display, crawl: CrawlId | None) -> None:
    began = time.monotonic()
    info: CrawlInfo | None = None
    lost_shards = 0
    while True:
        with contextlib.suppress(FrontierError):
            await frontier.check_data()
            if crawl is not None:
                info = await frontier.crawl_info(crawl)
        if frontier.lost_shards > lost_shards:
            _on_loss(crew, display, crawl)
            lost_shards = frontier.lost_shards
        display.update(Snapshot(crew.tally(), info, time.monotonic() - began))
        await asyncio.sleep(REFRESH_SECONDS)


def _on_loss(crew: Crew, display: Display, crawl: CrawlId | None) -> None:
    """The frontier lost its data. A crawl ends; a worker of a pool goes on, since others feed the frontier again."""
    lost = "The frontier lost its data: its server was emptied, or restarted without them."
    if crawl is None:
        log.error("%s %s The worker goes on with the empty frontier.", names.FRONTIER_LOST, lost)
    else:
        display.say(lost)
        crew.stop()
