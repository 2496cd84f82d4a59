"""Runs workers to their end: in this process, or in several under this one, with signals and progress."""

import asyncio
import contextlib
import ctypes
import gc
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from gossamer.cli.interruption import Interruption
from gossamer.cli.summary import Display, Snapshot, counted
from gossamer.errors import FrontierError, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Run
from gossamer.model.info import CrawlInfo
from gossamer.settings import Settings
from gossamer.sinks.open import missing_folders
from gossamer.telemetry import logs as names
from gossamer.telemetry.tally import Tally
from gossamer.wiring.processes import WorkerProcesses
from gossamer.wiring.worker import open_worker

log = logging.getLogger("gossamer")

REFRESH_SECONDS = 0.5


@dataclass(slots=True)
class WorkResult:
    """What came of it."""

    tally: Tally
    fault: str = ""
    """Why an output is not finished; its records are kept until it can be."""


class WorkRunner(Protocol):
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
) -> WorkResult:
    """Until the run is over (None: for ever) or interrupted. Raises GossamerError before anything is fetched.

    `bus`: pages go to the bus of the settings.
    """
    crawl = run.crawl.id if run else None
    shown = settings.worker.metrics
    for folder in missing_folders(settings.crawl.output):
        display.say(f"There is no folder {folder}; it is made for the output.")
    if settings.worker.processes > 1 or bus:
        crew = WorkerProcesses(settings, address, pool=pool, spiders=list(spiders), run=run, say=display.say, bus=bus)
        with _measured(shown, crew, frontier):
            return WorkResult(await _attend(crew, frontier, display, interruption, crawl), crew.fault)
    worked: WorkResult | None = None
    try:
        async with open_worker(settings, frontier, pool=pool, spiders=spiders, run=run, say=display.say) as worker:
            with _measured(shown, worker, frontier):
                worked = WorkResult(await _attend(worker, frontier, display, interruption, crawl))
    except SinkError as error:
        if worked is None:
            raise
        worked.fault = error.detail
    return worked


@contextlib.contextmanager
def _measured(address: str, crew: WorkRunner, frontier: ValkeyFrontier) -> Iterator[None]:
    """Show to Prometheus what the crew has done, where that is asked for."""
    if not address:
        yield
        return
    from gossamer.telemetry.metrics import Metrics  # who shows none need not load its library

    metrics = Metrics()
    metrics.add_tally(crew.tally)
    metrics.add_lost_shards(lambda: frontier.lost_shards)
    with metrics.serve(address):
        yield


async def _attend(
    crew: WorkRunner, frontier: ValkeyFrontier, display: Display, interruption: Interruption, crawl: CrawlId | None
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
        display.say(
            "The reader closed the output: stopped. Requests whose pages were not written stay in the frontier."
        )
    finally:
        interruption.ending()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    tally = crew.tally()
    if tally.abandoned and not at_once:
        pages, they = counted(tally.abandoned, "page"), "it is" if tally.abandoned == 1 else "they are"
        display.say(f"{pages} could not be finished; nothing is lost, {they} fetched again when the crawl goes on.")
        interruption.hurry()  # what takes nothing may not let itself be closed either
    return tally


async def _watch(crew: WorkRunner, frontier: ValkeyFrontier, display: Display, crawl: CrawlId | None) -> None:
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


def _on_loss(crew: WorkRunner, display: Display, crawl: CrawlId | None) -> None:
    """The frontier lost its data. A crawl ends; a worker of a pool goes on, since others feed the frontier again."""
    lost = "The frontier lost its data: its server was emptied, or restarted without them."
    if crawl is None:
        log.error("%s %s The worker goes on with the empty frontier.", names.FRONTIER_LOST, lost)
    else:
        display.say(lost)
        crew.stop()


T = TypeVar("T")

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 32 * 1024 * 1024


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end."""
    # Pages make many objects and hardly a cycle: looking for cycles as often as Python does costs a tenth of the CPU.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Have glibc keep up to 32 MiB of freed memory. By itself it returns what a parsed page leaves and asks for it anew
    for the next one, and the kernel's clearing of those pages is a tenth of all CPU. Elsewhere nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
