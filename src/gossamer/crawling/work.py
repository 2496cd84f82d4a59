"""Runs a worker, or several worker processes, while an observer gets the progress and the caller may interrupt it.

Also holds what comes of the work: the result of a command, and the report. A crawl with `--report` that has no readable
file on this machine (but standard output, remote storage or tables) keeps its pages in a private file in the data
directory until the report is written.

Fixed: what an interruption means. The first stops the work after the requests in flight, the second cancels the task;
either must leave requests in the frontier, never lose one. Also fixed: the name of the private file, which the command
that resumes the crawl looks for.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, Self

import msgspec

from gossamer.compiled import warn_of_unusable_extension
from gossamer.errors import BadInput, FrontierError, GossamerError, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, CrawlState, Run
from gossamer.model.info import CrawlInfo, NextRetry, SpiderCounts
from gossamer.model.record import Destination
from gossamer.option_names import named
from gossamer.policy.urls import origin
from gossamer.settings import Settings
from gossamer.sinks.base import Sink
from gossamer.sinks.open import ENDINGS, TABLES, ending_of, missing_folders
from gossamer.telemetry import logs
from gossamer.telemetry.patterns import growth_sentence, leading_patterns
from gossamer.telemetry.recordings import FOLDER
from gossamer.telemetry.tally import Tally
from gossamer.wiring.processes import WorkerProcesses
from gossamer.wiring.worker import open_worker

log = logging.getLogger("gossamer")

_REFRESH_SECONDS = 0.5
"""Interval at which progress is shown and the frontier (the store of requests) is checked for lost data. Shorter costs
calls to the frontier."""


class Snapshot(msgspec.Struct):
    """Progress at one moment."""

    tally: Tally
    """Counters of this command's workers."""
    info: CrawlInfo | None
    """State of the whole crawl, all machines. None: no crawl in particular, or its state is not known yet."""
    seconds: float
    """Time since the work began."""
    next_retry: NextRetry | None = None
    """Retry that is due first. None: not known, or not all requests wait for one."""


class Observer(Protocol):
    """Gets what a person may want to know while the work runs. It is called in the event loop and must not block."""

    def say(self, sentence: str) -> None:
        """Take a sentence that a person should know. It may hold a password in a URL."""

    def update(self, snapshot: Snapshot) -> None:
        """Take the progress, which comes every half second."""


class WorkControl(Protocol):
    """The caller's means to interrupt the work, as Ctrl-C does."""

    drain: Callable[[], None] | None
    """Stops the work after the requests in flight. The work sets it; the caller calls it, in the event loop."""
    was_interrupted: bool
    """True: the work ends before the crawl does. The caller sets it before it calls `drain` or cancels the task. The
    work sets it when the reader of an output went away."""

    def set_ending(self) -> None:
        """Record that the work is over: there is nothing left to interrupt."""

    def set_working(self) -> None:
        """Record that the work goes on, with another round."""

    def limit_time(self) -> None:
        """Record that what is left may hang, because an output accepts nothing."""


class Assignment(msgspec.Struct, frozen=True):
    """The requests that workers fetch, and where their pages go besides the outputs of the settings."""

    pool: str
    """The workers fetch the crawls in this pool."""
    spiders: Sequence[str]
    """Spiders whose requests the workers fetch. Empty: all that are installed."""
    run: Run | None = None
    """The work ends when this run, one life of a crawl, is over. None: it has no end."""
    bus: bool = False
    """True: pages also go to the message bus of the settings."""
    reader: Sink | None = None
    """Sink of this program that gets the pages before the outputs do. Needs a single worker in this process."""


class WorkResult(msgspec.Struct):
    """Counters of the workers of one command."""

    tally: Tally
    fault: str = ""
    """The reason why an output is not finished; its records are kept until it can be. Empty: no such trouble."""


_GONE = frozenset(("http_404", "http_410"))
"""Reasons of requests for pages that are gone."""


class CrawlResult(msgspec.Struct):
    """Result of a command or call. `tally` and `seconds` are its own share; `info` is the whole crawl, all machines.

    Fields may be added. They are read by the command line, by `crawling/python.py` and by tests.
    """

    crawl_id: str
    info: CrawlInfo | None
    """None: the state of the crawl could not be read, or this is no crawl."""
    tally: Tally
    seconds: float
    outputs: tuple[str, ...]
    interrupted: bool = False
    """True: the command was told to end before the crawl did."""
    retried: int = 0
    """Number of requests that had failed before this command, which it fetched again."""
    already_finished: bool = False
    """True: the crawl had ended before this command, which fetched nothing."""
    is_endless: bool = False
    """True: the crawl is kept up to date until it is interrupted. The counts are those of all rounds of the command."""
    may_be_empty: bool = False
    """True: this was a round over pages that were fetched before. None of them may be due, or all may be gone."""
    unwritten: bool = False
    """True: an output could not be finished."""
    lost: bool = False
    """True: the frontier lost its data during the crawl."""
    missing: dict[str, int] = msgspec.field(default_factory=dict)
    """Records that vanished from an output before this command started, by output. Later losses are in `tally`."""
    pool: str = ""
    """Pool of a worker that works for no crawl in particular. Empty: this is a crawl."""
    notes: list[str] = msgspec.field(default_factory=list)
    """Sentences at the end of the summary."""
    begun_at: str = ""
    """The first URL that a person gave, and how many more, where the name of the crawl begins with another host (ids do
    not depend on the order of URLs). Empty: the name tells."""
    item_outputs: tuple[str, ...] = ()
    """Those of the outputs that take only items."""
    mixed_outputs: tuple[str, ...] = ()
    """Those of the outputs that hold pages and items."""
    empty_outputs: tuple[str, ...] = ()
    """Those of them that this command made without any item."""
    without_items: dict[str, str] = msgspec.field(default_factory=dict)
    """Those of them that hold no item, each with what became of it: it was not written, or it is empty."""
    asset_folder: str = ""
    """Folder of the assets, the files that pages embed or link. Empty: none."""
    report: str = ""
    """Page about the crawl that was written. Empty: none."""
    lacks_report: bool = False
    """True: such a page was asked for and could not be written."""

    @property
    def finished(self) -> bool:
        """True: the crawl is finished or has expired."""
        return self.info is not None and self.info.state in (CrawlState.FINISHED, CrawlState.EXPIRED)

    @property
    def has_enough(self) -> bool:
        """True: the crawl has fetched a page, or a round did not have to: nothing was due, or what was due is gone."""
        total = self.info.pages if self.info else None
        if total.fetched if total else self.tally.pages:
            return True
        failed = total.failed if total else self.tally.failed
        return self.may_be_empty and (self.already_finished or _GONE.issuperset(failed))

    @property
    def missing_records(self) -> int:
        """Number of records that were written and have vanished."""
        return self.tally.missing + sum(self.missing.values())


class WorkRunner(Protocol):
    """A worker of this process, or several worker processes."""

    async def run(self) -> None:
        """Work until the run is over or `stop` was called and the requests in flight are finished."""

    def stop(self) -> None: ...

    @property
    def is_working(self) -> bool:
        """True once the work has begun, while a worker lives. May be read in any thread."""
        ...

    def tally(self) -> Tally:
        """Return the counters since the start."""
        ...


UNFINISHED: Final = "could not be finished; nothing is lost"
"""Part of the sentence about pages that a worker had fetched when it was stopped, for callers that do not show it."""


async def work(
    settings: Settings,
    frontier: ValkeyFrontier,
    address: str,
    assignment: Assignment,
    *,
    observer: Observer,
    control: WorkControl,
    monitor: "WorkMonitor | None" = None,
) -> WorkResult:
    """Work until the run of the assignment is over or the caller interrupts it.

    `address`: that of the frontier, for worker processes. `monitor`: shows the counters, and is served already; None:
    one is served where `worker.metrics` says. Raises GossamerError before anything is fetched.
    """
    pool, spiders, run, bus = assignment.pool, assignment.spiders, assignment.run, assignment.bus
    crawl = run.crawl.id if run else None
    warn_of_unusable_extension(observer.say)
    for folder in missing_folders(settings.crawl.output):
        if not Path(folder).is_relative_to(settings.data_dir):  # else it is an output of our own
            observer.say(f"The folder {folder} does not exist; it is created for the output.")
    if settings.worker.processes > 1 or bus:  # only worker processes open the bus
        processes = WorkerProcesses(
            settings, address, pool=pool, spiders=list(spiders), run=run, say=observer.say, bus=bus
        )
        with _shown(monitor, processes, frontier, settings):
            return WorkResult(await _attend(processes, frontier, observer, control, crawl), processes.fault)
    result: WorkResult | None = None
    try:
        async with open_worker(
            settings,
            frontier,
            pool=pool,
            spiders=spiders,
            run=run,
            reader=assignment.reader,
            say=observer.say,
        ) as worker:
            with _shown(monitor, worker, frontier, settings):
                result = WorkResult(await _attend(worker, frontier, observer, control, crawl))
    except SinkError as error:
        if result is None:
            raise
        result.fault = error.detail  # the work is done; only closing the outputs failed
    return result


class WorkMonitor:
    """Metrics and probes of a command that works. They are served from before the frontier can be reached."""

    def __init__(self) -> None:
        from gossamer.telemetry.metrics import Metrics  # imported late: its library takes time to load
        from gossamer.telemetry.probes import WorkProbes

        self._metrics = Metrics()
        self._probes = WorkProbes()

    @classmethod
    @contextlib.contextmanager
    def serve(cls, address: str) -> "Iterator[WorkMonitor | None]":
        """Serve them at this address. Empty: serve nothing, and yield None."""
        if not address:
            yield None
            return
        monitor = cls()
        with monitor._metrics.serve(address, option="the setting worker.metrics", probes=monitor._probes):
            yield monitor

    def show(self, runner: WorkRunner, frontier: ValkeyFrontier, data_dir: Path) -> None:
        """Show the counters of this work from now on."""
        self._metrics.add_tally(runner.tally)
        self._metrics.add_lost_shards(lambda: frontier.lost_shards)
        self._metrics.add_performance(data_dir / FOLDER)
        self._probes.attach(lambda: runner.is_working, lambda: runner.tally().troubles)


@contextlib.contextmanager
def _shown(
    monitor: WorkMonitor | None, runner: WorkRunner, frontier: ValkeyFrontier, settings: Settings
) -> Iterator[None]:
    """Show the counters of the work. `monitor` None: in one that is served for so long, where the settings say so."""
    address = settings.worker.metrics
    with contextlib.nullcontext(monitor) if monitor is not None else WorkMonitor.serve(address) as shown:
        if shown is not None:
            shown.show(runner, frontier, settings.data_dir)
        yield


async def _attend(
    runner: WorkRunner, frontier: ValkeyFrontier, observer: Observer, control: WorkControl, crawl: CrawlId | None
) -> Tally:
    """Run the work with progress and interruptions, and return its counters. `crawl` None: no crawl in particular."""
    control.drain = runner.stop
    if control.was_interrupted:  # between two rounds of a crawl that is kept up to date
        runner.stop()
    cancelled = False
    watching = asyncio.create_task(_watch(runner, frontier, observer, crawl))
    try:
        await runner.run()
    except asyncio.CancelledError:
        if not control.was_interrupted:
            raise
        asyncio.current_task().uncancel()  # type: ignore[union-attr]  # or the summary could not await anything
        cancelled = True
        observer.say("Stopped at once; requests in flight will be fetched again.")
    except BaseExceptionGroup as group:
        if group.subgroup(OutputClosed) is None:
            raise
        if not control.was_interrupted:
            control.was_interrupted = True
            observer.say(
                "The reader closed the output: stopped. Requests whose pages were not written stay in the frontier."
            )
    finally:
        control.set_ending()
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    tally = runner.tally()
    if tally.abandoned and not cancelled:
        one = tally.abandoned == 1
        observer.say(
            f"{tally.abandoned:,} fetched URL{'' if one else 's'} {UNFINISHED}, "
            f"{'it is' if one else 'they are'} fetched again when the crawl is resumed."
        )
        control.limit_time()  # an output that accepts nothing may not close either
    return tally


async def _watch(runner: WorkRunner, frontier: ValkeyFrontier, observer: Observer, crawl: CrawlId | None) -> None:
    """Show progress, and check whether the frontier still has its data. Runs until it is cancelled."""
    started = time.monotonic()
    info: CrawlInfo | None = None
    next_retry: NextRetry | None = None
    lost_shards = 0
    told: set[tuple[str, str]] = set()
    """Sites and kinds of growth that the observer was told about."""
    while True:
        with contextlib.suppress(FrontierError):
            await frontier.check_data()
            if crawl is not None:
                info = await frontier.crawl_info(crawl)
                total = info.total() if info else SpiderCounts()
                only_retries = total.later and not total.queued and not total.leased
                next_retry = await frontier.next_retry(crawl) if only_retries else None
        if frontier.lost_shards > lost_shards:
            _on_lost_data(runner, observer, crawl)
            lost_shards = frontier.lost_shards
        tally = runner.tally()
        for pattern, count in leading_patterns(tally.growing).items():
            if (site := (origin(count.example), count.growth)) not in told:
                told.add(site)
                observer.say(growth_sentence(pattern, count))
        observer.update(Snapshot(tally, info, time.monotonic() - started, next_retry))
        await asyncio.sleep(_REFRESH_SECONDS)


def _on_lost_data(runner: WorkRunner, observer: Observer, crawl: CrawlId | None) -> None:
    """Stop a crawl whose frontier lost its data. A worker of a pool goes on, because others feed the frontier again."""
    lost = "The frontier lost its data: its server was emptied, or restarted without them."
    if crawl is None:
        log.error("%s %s The worker goes on with the empty frontier.", logs.FRONTIER_LOST, lost)
    else:
        observer.say(lost)
        runner.stop()


# --- the report -------------------------------------------------------------------------------------------------------


_KEPT_SECONDS = 30 * 86_400.0
"""Time after which pages that are kept for a report are deleted, if their crawl has not gone on. It must be longer than
people leave a crawl interrupted."""


def kept_pages(data_dir: Path, crawl: CrawlId) -> Path:
    """Return the file with the pages that a crawl keeps for its report alone."""
    return data_dir / "report" / f"{crawl.token}.jsonl.zst"


def delete_old_pages(data_dir: Path, *, now: float, spared: CrawlId) -> None:
    """Delete pages that other crawls than `spared` have kept for a report, and have not added to for a long time."""
    for path in kept_pages(data_dir, spared).parent.glob("*.jsonl.zst"):
        with contextlib.suppress(OSError):  # another command deletes it, or it stays for the next one
            if path != kept_pages(data_dir, spared) and now - path.stat().st_mtime > _KEPT_SECONDS:
                path.unlink()


_READABLE = frozenset(ENDINGS) - frozenset(TABLES)
"""Endings of outputs that have the bodies of pages, and take pages unless told otherwise."""


class CrawlReport(msgspec.Struct, frozen=True):
    """The report of one crawl."""

    page: Path
    """Where the report is written."""
    records: Path
    """File that it is made from."""
    is_private: bool
    """True: the crawl writes that file for the report alone, which deletes it."""
    crawl_id: str

    @classmethod
    def of(cls, settings: Settings, crawl: CrawlId) -> Self | None:
        """Return the report that the settings ask for. None: they ask for none."""
        if not settings.crawl.report:
            return None
        page = Path(settings.crawl.report)
        for output in settings.crawl.output:
            if output.records != "items" and _is_readable(output.path):
                return cls(page, Path(output.path), False, crawl.crawlid)
        return cls(page, kept_pages(settings.data_dir, crawl), True, crawl.crawlid)

    def with_output(self, settings: Settings) -> Settings:
        """Return the settings with the private file as one more output, if there is one."""
        if not self.is_private:
            return settings
        outputs = (*settings.crawl.output, Destination(str(self.records), "pages"))
        return settings.copy(crawl=settings.crawl.copy(output=outputs))

    async def write(self, *, finished: bool) -> None:
        """Write the report of a crawl that has ended. Raises BadInput or SinkError.

        `finished`: nothing is left to fetch. Then the private file is deleted.
        """
        if not self.records.exists():
            raise BadInput(
                f"the pages of this crawl were not kept for one. Crawl it again with {named('fresh', True)}."
                if self.is_private
                else f"{self.records} does not exist. To make one from another file: gossamer report FILE"
            )
        await asyncio.to_thread(self._make)
        if finished and self.is_private:
            self.records.unlink(missing_ok=True)

    def _make(self) -> None:
        from gossamer.report.page import make_report, write_page  # imported late: few crawls have a report

        write_page(self.page, make_report([self.records], crawl_id=self.crawl_id).page)


async def add_report(result: CrawlResult, report: CrawlReport) -> None:
    """Write the report, unless the crawl goes on later."""
    if report.is_private:
        result.outputs = tuple(path for path in result.outputs if path != str(report.records))
    if result.interrupted and not result.finished:
        result.notes.append(f"The report is written when the crawl is finished: {report.page}")
        return
    try:  # the pages are kept as long as the same command may fetch more
        await report.write(finished=result.finished and not (result.info and result.info.kept_failed))
    except GossamerError as error:
        result.lacks_report = True
        result.notes.append(f"There is no report: {error}")
    else:
        result.report = str(report.page)


def check_report(settings: Settings) -> None:
    """Check, before anything is fetched, that the report can be written. Raises BadInput."""
    if settings.crawl.report:
        from gossamer.report.page import check_target

        outputs = [Path(output.path) for output in settings.crawl.output if _is_readable(output.path)]
        page = Path(settings.crawl.report)
        if page.suffix.lower() not in (".html", ".htm"):
            raise BadInput(f"{page} does not end with .html. Name a page, for example report.html.", option="report")
        check_target(page, outputs)


def _is_readable(path: str) -> bool:
    """Return whether a report can be made from this output: a local file with the bodies of pages."""
    return path != "-" and "://" not in path and ending_of(path) in _READABLE
