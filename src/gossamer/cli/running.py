"""Runs workers to their end: in this process, or in several under this one, with signals and progress."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from gossamer.cli.display import Display, Snapshot
from gossamer.errors import FrontierError, OutputClosed
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Run
from gossamer.model.info import CrawlInfo
from gossamer.settings import Settings
from gossamer.telemetry.tally import Tally
from gossamer.wiring.parts import working
from gossamer.wiring.processes import Processes

REFRESH_SECONDS = 0.5


class Crew(Protocol):
    """Whoever does the work: a worker or several processes."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...

    def tally(self) -> Tally: ...


class Interruption:
    """Ctrl-C and SIGTERM: the first drains, the second ends at once."""

    def __init__(self, drain: Callable[[], None], say: Callable[[str], None]) -> None:
        self._drain = drain
        self._say = say
        self.met = False
        self._task = asyncio.current_task()

    def __enter__(self) -> "Interruption":
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        return self

    def __exit__(self, *error: object) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        if not self.met:
            self.met = True
            self._say("Finishing what is under way; press Ctrl-C again to stop at once.")
            self._drain()
        elif self._task is not None:
            self._task.cancel()


async def work(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    display: Display,
    *,
    pool: str,
    spiders: Sequence[str] = (),
    run: Run | None = None,
    bus: bool = False,
) -> tuple[Tally, bool]:
    """Until the run is over (None: for ever) or interrupted: what was done, and whether it was interrupted.

    `bus`: pages go to the bus of the settings."""
    if settings.worker.processes > 1 or bus:
        crew: Crew = Processes(settings, address, pool=pool, spiders=list(spiders), run=run, say=display.say, bus=bus)
        return await _attend(crew, frontier, display, run.crawl.id if run else None)
    async with working(settings, frontier, pool=pool, spiders=spiders, run=run, say=display.say) as worker:
        return await _attend(worker, frontier, display, run.crawl.id if run else None)


async def _attend(crew: Crew, frontier: ValkeyFrontier, display: Display, crawl: CrawlId | None) -> tuple[Tally, bool]:
    with Interruption(crew.stop, display.say) as interruption:
        watching = asyncio.create_task(_watch(crew, frontier, display, crawl))
        try:
            await crew.run()
        except asyncio.CancelledError:
            if not interruption.met:
                raise
            asyncio.current_task().uncancel()  # type: ignore[union-attr]
            display.say("Stopped at once; what was under way will be fetched again.")
        except BaseExceptionGroup as group:
            if group.subgroup(OutputClosed) is None:
                raise
            interruption.met = True
            display.say("Nobody reads the output any more: stopped; what was not written is still in the frontier.")
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        return crew.tally(), interruption.met


async def _watch(crew: Crew, frontier: ValkeyFrontier, display: Display, crawl: CrawlId | None) -> None:
    began = time.monotonic()
    info: CrawlInfo | None = None
    while True:
        if crawl is not None:
            with contextlib.suppress(FrontierError):
                info = await frontier.crawl_info(crawl)
        display.update(Snapshot(crew.tally(), info, time.monotonic() - began))
        await asyncio.sleep(REFRESH_SECONDS)
