"""`gossamer worker`: works for a frontier that others feed. Also the worker processes that other commands start.

The frontier is the store of the requests to fetch. Safe to change: help texts (then regenerate docs/reference) and
sentences. Fixed: flags and exit codes; and that a worker process ends when its standard input does, so that none
outlives its parent. What parent and process send each other may be changed together with wiring/processes.py, the
parent's end.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager
from typing import Annotated, Any

import msgspec
import typer

from gossamer.cli import options, terminal
from gossamer.cli.commands.crawl import check_writable, print_summary
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import when_reachable
from gossamer.cli.summary import Display, Summary
from gossamer.cli.terminal import GRACE_SECONDS, Interruption, exit_within
from gossamer.crawling.work import Assignment, work
from gossamer.errors import BadInput, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import SHARED_POOL
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import connect, warn_of_memory_only
from gossamer.wiring.processes import WorkerCommand, WorkerReport
from gossamer.wiring.worker import open_worker
from gossamer.worker.loading import find_spider, make_spider
from gossamer.worker.worker import Worker

Pool = Annotated[
    str,
    typer.Option(
        "--pool",
        metavar="NAME",
        help="Crawls to work for: those of this pool. All crawls of a service are in the pool shared.",
        rich_help_panel=options.WHERE,
    ),
]
Spiders = Annotated[
    list[str] | None,
    typer.Option(
        "--spider",
        metavar="NAME|FILE",
        help="Work only for this spider: an installed one by its name, or that of a file, shop.py or shop.py:Class. "
        "Unset: for all that are installed.",
        rich_help_panel=options.WHAT,
        show_default=False,
    ),
]


@options.takes(
    "output", "csv_guard", "bus", "prefix", "concurrency", "processes", "contact", "resolve", "allow_network",
    "ca_file", "egress", "frontier", "data_dir",
)  # fmt: skip
def worker(
    pool: Pool = SHARED_POOL,
    spider: Spiders = None,
    *,
    json: options.Json = False,
    quiet: options.Quiet = False,
    **given: Any,
) -> None:
    """Fetch the requests that others put into a shared frontier, until Ctrl-C.

    gossamer worker --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    gossamer worker --frontier redis://frontier.example:6379 -o pages.jsonl.zst

    With --bus the pages are published there, and written to files only if -o names some.

    Ctrl-C or SIGTERM stops it safely: requests in flight are finished, the others go to other workers.
    """
    settings = options.load_settings(given)
    logs.set_up(settings.log_level, style=settings.log_format)
    if settings.bus:
        from gossamer.wiring.service import bus_worker_settings, check_bus  # imported late: it loads the services

        check_bus(settings.bus)
        settings = bus_worker_settings(settings)
    if settings.crawl.output:
        check_writable(settings)
    for name in spider or []:
        make_spider(find_spider(name))
    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        raise BadInput(
            "there is no frontier to work for. Name one with --frontier, for example redis://frontier.example:6379, or "
            "with --data-dir the data directory of a gossamer that runs on this machine."
        )
    summary = run_loop(_work(settings, address, pool, spider or [], quiet=quiet or json))
    print_summary(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output_paths)
    raise typer.Exit(1 if summary.unwritten or summary.missing_records else 0)


def _destinations(settings: Settings) -> str:
    """Return where the pages go. Without a bus, also the option that names one, in case it was forgotten."""
    files = terminal.without_passwords(", ".join(settings.crawl.output_paths))
    if not settings.bus:
        return f"{files} (to publish them to a service's consumers: --bus)"
    return ", ".join(filter(None, (f"the bus {terminal.without_passwords(settings.bus)}", files)))


async def _work(settings: Settings, address: str, pool: str, spiders: list[str], *, quiet: bool) -> Summary:
    """Work for a pool, which is a name for a set of crawls, until the command is interrupted. `spiders` empty: for
    all."""
    with (
        Display(f"Working for the pool {pool}; pages go to {_destinations(settings)}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
    ):
        frontier = await when_reachable("frontier", lambda: connect(settings, address), display.say)
        warn_of_memory_only(frontier, display.say)
        try:
            started = time.monotonic()
            result = await work(
                settings,
                frontier,
                address,
                Assignment(pool, spiders, bus=bool(settings.bus)),
                observer=display,
                control=interruption,
            )
            return Summary(
                f"of the pool {pool}",
                None,
                result.tally,
                time.monotonic() - started,
                (*settings.crawl.output_paths, *([settings.bus] if settings.bus else [])),
                interrupted=True,  # nothing else ends this command
                pool=pool,
                unwritten=bool(result.fault),
                notes=[result.fault] if result.fault else [],
            )
        finally:
            await frontier.close()


_REPORT_SECONDS = 0.5
"""Interval at which a worker process reports its counters to its parent. Tuning only: a process that is killed loses
the counts since its last report; the parent shows progress every half second."""


def run_worker_process() -> None:
    """Run this process as one of several workers, as its parent orders on standard input."""
    command = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerCommand)
    settings = Settings.from_json(command.settings)
    logs.set_up(settings.log_level, style=settings.log_format)
    run_loop(_run_worker_process(settings, command))


async def _run_worker_process(settings: Settings, command: WorkerCommand) -> None:
    """Work until the run is over, or a signal or the end of standard input stops the worker; report to the parent."""
    parent = _Parent(command.report_fd)
    frontier = await connect(settings, command.address)
    try:
        async with _open_worker(settings, command, frontier, parent) as worker:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            # Standard input ends when the parent ends, for whatever reason.
            stdin, _ = await loop.connect_read_pipe(lambda: _StdinClosed(worker), sys.stdin)
            reporting = asyncio.create_task(_report_tally(worker, parent))
            try:
                await worker.run()
            except BaseExceptionGroup as group:
                if group.subgroup(OutputClosed) is None:
                    raise
                parent.send(WorkerReport(closed=True))
            finally:
                reporting.cancel()
                stdin.close()
                tally = worker.tally()
                parent.send(WorkerReport(tally=tally))
                if tally.abandoned:  # an output that accepts nothing may not close either
                    exit_within(GRACE_SECONDS, "", 0)  # 0: the parent must not start the process again
        parent.send(WorkerReport(tally=worker.tally()))  # again, because closing the outputs counts missing records
    except SinkError as error:
        parent.send(WorkerReport(fault=error.detail))
    finally:
        await frontier.close()


def _open_worker(
    settings: Settings, command: WorkerCommand, frontier: ValkeyFrontier, parent: "_Parent"
) -> AbstractAsyncContextManager[Worker]:
    """Return a worker that publishes its pages on the bus, or one that writes them to the outputs of the settings."""
    if command.bus:
        from gossamer.wiring.service import open_bus_worker  # imported late: it loads the services

        return open_bus_worker(
            settings, frontier, command.address, pool=command.pool, spiders=command.spiders, say=parent.say
        )
    return open_worker(settings, frontier, pool=command.pool, spiders=command.spiders, run=command.run, say=parent.say)


async def _report_tally(worker: Worker, parent: "_Parent") -> None:
    while True:
        parent.send(WorkerReport(tally=worker.tally()))
        await asyncio.sleep(_REPORT_SECONDS)


class _Parent:
    """The process that started this one, at the other end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, sentence: str) -> None:
        """Have the parent show a sentence."""
        self.send(WorkerReport(say=sentence))

    def send(self, report: WorkerReport) -> None:
        """Send a report. Does nothing if the parent is gone."""
        try:
            os.write(self._descriptor, msgspec.json.encode(report) + b"\n")
        except OSError:
            self._descriptor = -1  # the parent is gone; the end of standard input stops the worker


class _StdinClosed(asyncio.Protocol):
    """Stops the worker when standard input ends."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_lost(self, exc: Exception | None) -> None:
        """Hook of asyncio: standard input has ended."""
        self._worker.stop()
