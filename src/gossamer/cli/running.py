"""Runs the work of commands: an event loop, a worker or several worker processes, and calls to a running cluster.

Safe to change: the intervals and the numbers for garbage collection and memory, which only cost or save CPU time, and
the sentences, except that tests wait for some. Fixed: what an interruption means. The first stops the work after the
requests in flight, the second cancels the task; either must leave requests in the frontier, never lose one.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gossamer.cli import terminal
from gossamer.cli.summary import Display, Snapshot, counted
from gossamer.cli.terminal import Interruption
from gossamer.errors import BadInput, BusUnavailable, FrontierError, FrontierUnavailable, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Run
from gossamer.model.info import CrawlInfo
from gossamer.policy.retry import retry_delay
from gossamer.settings import Settings
from gossamer.sinks.open import missing_folders
from gossamer.telemetry import logs
from gossamer.telemetry.logs import Troubles
from gossamer.telemetry.tally import Tally
from gossamer.valkey.datadir import running_address
from gossamer.wiring.processes import WorkerProcesses
from gossamer.wiring.worker import open_worker

if TYPE_CHECKING:
    from gossamer.wiring.service import ServiceContext

log = logging.getLogger("gossamer")

_REFRESH_SECONDS = 0.5
"""Interval at which progress is shown and the frontier (the store of requests) is checked for lost data. Tuning only:
shorter costs calls to the frontier."""


@dataclass(slots=True)
class WorkResult:
    """Counters of the workers of one command."""

    tally: Tally
    fault: str = ""
    """The reason why an output is not finished; its records are kept until it can be. Empty: no such trouble."""


class WorkRunner(Protocol):
    """A worker of this process, or several worker processes."""

    async def run(self) -> None:
        """Work until the run is over or `stop` was called and the requests in flight are finished."""

    def stop(self) -> None: ...

    def tally(self) -> Tally:
        """Return the counters since the start."""
        ...


async def work(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    display: Display,
    interruption: Interruption,
    *,
    pool: str,
    spiders: Sequence[str],
    run: Run | None = None,
    bus: bool = False,
) -> WorkResult:
    """Work until `run`, one life of a crawl, is over (None: without end) or the command is interrupted.

    `address`: that of the frontier, for worker processes. `pool`: the workers fetch the crawls in this pool. `spiders`
    empty: all that are installed. `bus` True: pages go to the message bus of the settings. Raises GossamerError before
    anything is fetched.
    """
    crawl = run.crawl.id if run else None
    metrics_address = settings.worker.metrics
    for folder in missing_folders(settings.crawl.output):
        display.say(f"The folder {folder} does not exist; it is created for the output.")
    if settings.worker.processes > 1 or bus:  # only worker processes open the bus
        processes = WorkerProcesses(
            settings, address, pool=pool, spiders=list(spiders), run=run, say=display.say, bus=bus
        )
        with _metrics_served(metrics_address, processes, frontier):
            return WorkResult(await _attend(processes, frontier, display, interruption, crawl), processes.fault)
    result: WorkResult | None = None
    try:
        async with open_worker(settings, frontier, pool=pool, spiders=spiders, run=run, say=display.say) as worker:
            with _metrics_served(metrics_address, worker, frontier):
                result = WorkResult(await _attend(worker, frontier, display, interruption, crawl))
    except SinkError as error:
        if result is None:
            raise
        result.fault = error.detail  # the work is done; only closing the outputs failed
    return result


@contextlib.contextmanager
def _metrics_served(address: str, runner: WorkRunner, frontier: ValkeyFrontier) -> Iterator[None]:
    """Serve the counters to Prometheus at this address. Empty: serve nothing."""
    if not address:
        yield
        return
    from gossamer.telemetry.metrics import Metrics  # imported late: its library takes time to load

    metrics = Metrics()
    metrics.add_tally(runner.tally)
    metrics.add_lost_shards(lambda: frontier.lost_shards)
    with metrics.serve(address):
        yield


async def _attend(
    runner: WorkRunner, frontier: ValkeyFrontier, display: Display, interruption: Interruption, crawl: CrawlId | None
) -> Tally:
    """Run the work with progress and interruptions, and return its counters. `crawl` None: no crawl in particular."""
    interruption.drain = runner.stop
    cancelled = False
    watching = asyncio.create_task(_watch(runner, frontier, display, crawl))
    try:
        await runner.run()
    except asyncio.CancelledError:
        if not interruption.was_interrupted:
            raise
        asyncio.current_task().uncancel()  # type: ignore[union-attr]  # or the summary could not await anything
        cancelled = True
        display.say("Stopped at once; requests in flight will be fetched again.")
    except BaseExceptionGroup as group:
        if group.subgroup(OutputClosed) is None:
            raise
        interruption.was_interrupted = True
        display.say(
            "The reader closed the output: stopped. Requests whose pages were not written stay in the frontier."
        )
    finally:
        interruption.set_ending()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    tally = runner.tally()
    if tally.abandoned and not cancelled:
        pages, they_are = counted(tally.abandoned, "page"), "it is" if tally.abandoned == 1 else "they are"
        display.say(
            f"{pages} could not be finished; nothing is lost, {they_are} fetched again when the crawl is resumed."
        )
        interruption.limit_time()  # an output that accepts nothing may not close either
    return tally


async def _watch(runner: WorkRunner, frontier: ValkeyFrontier, display: Display, crawl: CrawlId | None) -> None:
    """Show progress, and check whether the frontier still has its data. Runs until it is cancelled."""
    started = time.monotonic()
    info: CrawlInfo | None = None
    lost_shards = 0
    while True:
        with contextlib.suppress(FrontierError):
            await frontier.check_data()
            if crawl is not None:
                info = await frontier.crawl_info(crawl)
        if frontier.lost_shards > lost_shards:
            _on_lost_data(runner, display, crawl)
            lost_shards = frontier.lost_shards
        display.update(Snapshot(runner.tally(), info, time.monotonic() - started))
        await asyncio.sleep(_REFRESH_SECONDS)


def _on_lost_data(runner: WorkRunner, display: Display, crawl: CrawlId | None) -> None:
    """Stop a crawl whose frontier lost its data. A worker of a pool goes on, because others feed the frontier again."""
    lost = "The frontier lost its data: its server was emptied, or restarted without them."
    if crawl is None:
        log.error("%s %s The worker goes on with the empty frontier.", logs.FRONTIER_LOST, lost)
    else:
        display.say(lost)
        runner.stop()


T = TypeVar("T")


def ask(settings: Settings, question: "Callable[[ServiceContext], Coroutine[Any, Any, T]]") -> T:
    """Return what `question` returns of the running cluster: the one at --frontier, or in the data directory."""
    logs.set_up(settings.log_level, style=settings.log_format)

    async def connect_and_ask() -> T:
        with Interruption(None, terminal.say):
            async with _cluster(settings) as context:
                return await question(context)

    return run(connect_and_ask())


@asynccontextmanager
async def _cluster(settings: Settings) -> "AsyncIterator[ServiceContext]":
    """Connect to the running cluster. Raises BadInput where none runs."""
    # Imported late: `gossamer crawl` needs none of the services.
    from gossamer.wiring.service import open_service

    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        raise BadInput(
            f"no crawl and no service is running with the data directory {settings.data_dir}. Start one there "
            "(`gossamer up` starts a service), or name a shared frontier with --frontier."
        )
    async with open_service(settings, address) as context:
        yield context


_FIRST_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 5.0
"""Pauses between attempts to reach a server; each is about twice the one before. Tuning only: longer ones delay the
start after an outage."""


async def when_reachable(name: str, call: Callable[[], Awaitable[T]], say: Callable[[str], None]) -> T:
    """Repeat the call until the frontier or the bus (`name`, in messages) can be reached, and return its result.

    An outage is shown at once. Other errors are raised: waiting does not mend a wrong password or an unsuitable server.
    """
    troubles = Troubles(say)
    failures = 0
    while True:
        try:
            result = await call()
        except (FrontierUnavailable, BusUnavailable) as error:
            troubles.begin(name, f"{str(error).rstrip('.')}. Waiting for it; until then, no requests are accepted.")
        else:
            troubles.end(name, f"The {name} can be reached now.")
            return result
        failures += 1
        await asyncio.sleep(
            retry_delay(
                failures,
                random=random.random(),
                base_seconds=_FIRST_PAUSE_SECONDS,
                cap_seconds=_LONGEST_PAUSE_SECONDS,
            )
        )


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # numbers of glibc's mallopt(3): fixed
_KEPT_BYTES = 32 * 1024 * 1024
"""Freed memory that glibc keeps for the next page. Tuning only: less costs CPU time; more costs memory."""
_COLLECT_AFTER = (50_000, 20, 20)
"""Arguments of `gc.set_threshold`. Pages create many objects but hardly any cycles; looking for cycles at Python's
default interval takes a tenth of the CPU time. Tuning only: larger numbers let cycles occupy memory for longer."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop and return its result."""
    gc.freeze()  # what is loaded now stays; the collector need not look at it
    gc.set_threshold(*_COLLECT_AFTER)
    _keep_freed_memory()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main)


def _keep_freed_memory() -> None:
    """Make glibc keep freed memory. By default it returns the memory of each parsed page to the kernel and asks for it
    again, and clearing it takes a tenth of the CPU time. With other C libraries nothing happens."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc
        return
    mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory of event loops. None: uvloop is not installed, and asyncio's own loop serves."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
