"""`gossamer worker`: works for a frontier that others feed."""

import asyncio
import os
import signal
import sys
import time
from contextlib import AbstractAsyncContextManager
from typing import Annotated

import msgspec
import typer

from gossamer.cli import interruption as signals
from gossamer.cli import options, standard
from gossamer.cli import options as inputs
from gossamer.cli.asking import arrived
from gossamer.cli.commands.crawl import tell
from gossamer.cli.interruption import GRACE_SECONDS, Interruption
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import work
from gossamer.cli.summary import Display, Summary
from gossamer.errors import BadInput, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.settings import Settings, load
from gossamer.telemetry import logs
from gossamer.valkey.datadir import running_address
from gossamer.wiring.frontier import connect, warn_of_memory_only
from gossamer.wiring.processes import WorkerCommand, WorkerReport
from gossamer.wiring.worker import open_worker
from gossamer.worker.spider import load_spider
from gossamer.worker.worker import Worker

Spiders = Annotated[
    list[str] | None,
    typer.Option(
        "--spider", metavar="NAME", help="Only work for this spider. Unset: all that are installed.",
        rich_help_panel=options.WHERE, show_default=False,
    ),
]  # fmt: skip


def worker(
    pool: options.Pool = "shared",
    spider: Spiders = None,
    output: options.OutputOption = None,
    bus: options.BusOption = None,
    prefix: options.TopicPrefix = None,
    concurrency: options.Concurrency = None,
    processes: options.ProcessesOption = None,
    resolve: options.Resolve = None,
    allow_network: options.AllowNetwork = None,
    ca_file: options.CaFile = None,
    egress: options.Egress = None,
    frontier: options.FrontierOption = None,
    data_dir: options.DataDir = None,
    config: options.Config = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fetch what others put into a frontier, until told to stop.

    gossamer worker --frontier redis://frontier.example:6379 --bus kafka://broker.example:9092

    gossamer worker --frontier redis://frontier.example:6379 -o pages.jsonl.zst

    With --bus the pages go there, and into files only where -o names some.

    Ctrl-C or SIGTERM stops it in good order: what is under way is finished, the rest given back.
    """
    settings = load(
        {
            "crawl.output": tuple(output) if output else None,
            "bus": bus,
            "topics.prefix": prefix,
            "allow_networks": tuple(allow_network) if allow_network else None,
            "worker.concurrency": concurrency,
            "worker.processes": processes,
            "fetch.resolve": inputs.overrides(resolve),
            "fetch.ca_file": ca_file,
            "egress": egress,
            "frontier": frontier,
            "data_dir": data_dir,
        },
        config=config,
    )
    logs.set_up(settings.log_level, style=settings.log_format)
    if settings.bus:
        from gossamer.wiring.service import (
            bus_worker_settings,
            check_bus,  # the services' libraries are for those who need them
        )

        check_bus(settings.bus)
        settings = bus_worker_settings(settings)
    if settings.crawl.output:
        inputs.outputs(settings.crawl.output)
    for name in spider or []:
        load_spider(name)
    address = settings.frontier or running_address(settings.data_dir)
    if not address:
        raise BadInput(
            "there is no frontier to work for; name one with --frontier, for example redis://frontier.example:6379, or "
            "by --data-dir the data directory of a gossamer that runs on this machine"
        )
    summary = run_loop(_work(settings, address, pool, spider or [], quiet=quiet or json))
    tell(summary, as_json=json, quiet=quiet, on_stderr="-" in settings.crawl.output)
    raise typer.Exit(1 if summary.unwritten or summary.missing_records else 0)


def _places(settings: Settings) -> str:
    """Where the pages go: whoever meant the bus of a service sees at once that it was not named."""
    files = standard.shown(", ".join(settings.crawl.output))
    if not settings.bus:
        return f"{files} (--bus: to a service's consumers)"
    return ", ".join(filter(None, (f"the bus {standard.shown(settings.bus)}", files)))


async def _work(settings: Settings, address: str, pool: str, spiders: list[str], *, quiet: bool) -> Summary:
    with (
        Display(f"Working for the pool {pool}; pages go to {_places(settings)}", quiet=quiet) as display,
        Interruption(None, display.say) as interruption,
    ):
        frontier = await arrived("frontier", lambda: connect(settings, address), display.say)
        warn_of_memory_only(frontier, display.say)
        try:
            began = time.monotonic()
            worked = await work(
                settings,
                frontier,
                address,
                display,
                interruption,
                pool=pool,
                spiders=spiders,
                bus=bool(settings.bus),
            )
            return Summary(
                f"of the pool {pool}",
                None,
                worked.tally,
                time.monotonic() - began,
                (*settings.crawl.output, *([settings.bus] if settings.bus else [])),
                interrupted=True,
                pool=pool,
                unwritten=bool(worked.fault),
                notes=[worked.fault] if worked.fault else [],
            )
        finally:
            await frontier.close()


REPORT_SECONDS = 0.5


def worker_process() -> None:
    """One of several worker processes; started by `gossamer crawl --processes N`."""
    errand = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerCommand)
    settings = Settings.model_validate(errand.settings)
    logs.set_up(settings.log_level, style=settings.log_format)
    run_loop(_worker_process_work(settings, errand))


async def _worker_process_work(settings: Settings, errand: WorkerCommand) -> None:
    status = _Status(errand.report_fd)
    frontier = await connect(settings, errand.address)
    try:
        async with _worker(settings, errand, frontier, status) as worker:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            # Standard input ends when the parent does, however it ended.
            watching, _ = await loop.connect_read_pipe(lambda: _StdinClosed(worker), sys.stdin)
            reporting = asyncio.create_task(_report(worker, status))
            try:
                await worker.run()
            except BaseExceptionGroup as group:
                if group.subgroup(OutputClosed) is None:
                    raise
                status.tell(WorkerReport(closed=True))
            finally:
                reporting.cancel()
                watching.close()
                tally = worker.tally()
                status.tell(WorkerReport(tally=tally))
                if tally.abandoned:  # what takes nothing may not let itself be closed either
                    signals.end_within(GRACE_SECONDS, "", 0)
        status.tell(WorkerReport(tally=worker.tally()))  # again: closing the outputs counts what is missing from them
    except SinkError as error:
        status.tell(WorkerReport(fault=error.detail))
    finally:
        await frontier.close()


def _worker(
    settings: Settings, errand: WorkerCommand, frontier: ValkeyFrontier, status: "_Status"
) -> AbstractAsyncContextManager[Worker]:
    if errand.bus:
        from gossamer.wiring.service import open_bus_worker  # the services' libraries are for those who need them

        return open_bus_worker(
            settings, frontier, errand.address, pool=errand.pool, spiders=errand.spiders, say=status.say
        )
    return open_worker(settings, frontier, pool=errand.pool, spiders=errand.spiders, run=errand.run, say=status.say)


async def _report(worker: Worker, status: "_Status") -> None:
    while True:
        status.tell(WorkerReport(tally=worker.tally()))
        await asyncio.sleep(REPORT_SECONDS)


class _Status:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, sentence: str) -> None:
        self.tell(WorkerReport(say=sentence))

    def tell(self, word: WorkerReport) -> None:
        try:
            os.write(self._descriptor, msgspec.json.encode(word) + b"\n")
        except OSError:
            self._descriptor = -1  # the parent is gone; standard input says so too


class _StdinClosed(asyncio.Protocol):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.stop()
