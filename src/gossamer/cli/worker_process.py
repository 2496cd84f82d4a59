"""The worker processes that other commands start: the other end of wiring/processes.py.

This module loads nothing of the commands, so that a process starts quickly; keep it so. Fixed: a worker process ends
when its standard input does, so that none outlives its parent.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial

import msgspec

from gossamer.cli import terminal
from gossamer.cli.running import run as run_loop
from gossamer.cli.running import when_reachable
from gossamer.cli.terminal import GRACE_SECONDS, exit_within
from gossamer.errors import GossamerError, LoginFailed, OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.valkey import server_check
from gossamer.wiring.fork_server import ForkServer, continue_without_parent
from gossamer.wiring.frontier import connect
from gossamer.wiring.processes import WorkerCommand, WorkerReport, with_process_count
from gossamer.wiring.worker import open_worker
from gossamer.worker.seen import SeenTable
from gossamer.worker.worker import Worker

_REPORT_SECONDS = 0.5
"""Interval at which a worker process reports its counters to its parent. A process that is killed loses the counts
since its last report; the parent shows progress every half second."""


@contextlib.contextmanager
def fork_server(settings: Settings) -> Iterator[None]:
    """Have a fork server in this context, if the command may start several worker processes. Enter it before spiders or
    other code of users are loaded, and before there are threads or an event loop."""
    server = None
    if with_process_count(settings).worker.processes > 1:
        seen = None
        with contextlib.suppress(OSError):  # not enough memory: each process remembers for itself
            seen = SeenTable(settings.worker.seen_cache)
        server = ForkServer.start(partial(run_worker_process, seen))
    try:
        yield
    finally:
        if server is not None:
            server.close()


def run_worker_process(seen: SeenTable | None = None) -> int:
    """Run this process as one of several workers, as its parent orders on standard input. Returns its exit code.
    `seen`: memory that it shares with the others."""
    continue_without_parent()
    line = sys.stdin.buffer.readline()
    if not line:
        return 0  # the parent is gone
    command = msgspec.json.decode(line, type=WorkerCommand)
    settings = Settings.from_json(command.settings)
    logs.set_up(settings.log_level, style=settings.log_format)
    server_check.be_silent()  # the parent has said it
    try:
        run_loop(_run_worker_process(settings, command, seen))
    except asyncio.CancelledError:
        return 0  # the parent ended while this process waited for the frontier
    except GossamerError as error:
        terminal.say(str(error))
        return error.exit_code
    return 0


async def _run_worker_process(settings: Settings, command: WorkerCommand, seen: SeenTable | None) -> None:
    """Work until the run is over, or a signal or the end of standard input stops the worker; report to the parent.
    Waits for the frontier: the parent has reached it before, so that this is an outage."""
    parent = _Parent(command.report_fd)
    this_task = asyncio.current_task()
    assert this_task
    lifeline = _Lifeline(this_task.cancel)
    stdin, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: lifeline, sys.stdin)
    try:
        async with contextlib.AsyncExitStack() as closing:

            async def enter() -> Worker:
                async with contextlib.AsyncExitStack() as opening:
                    frontier = await connect(settings, command.address)
                    opening.push_async_callback(frontier.close)
                    worker = await opening.enter_async_context(_open_worker(settings, command, frontier, parent, seen))
                    await closing.enter_async_context(opening.pop_all())
                return worker

            worker = await when_reachable("frontier", enter, parent.say, effect="The new worker process waits for it.")
            lifeline.on_end = worker.stop
            await _work(worker, parent)
        parent.send(WorkerReport(tally=worker.tally()))  # again, because closing the outputs counts missing records
    except (SinkError, LoginFailed) as error:
        parent.send(WorkerReport(fault=error.detail))
    finally:
        stdin.close()


async def _work(worker: Worker, parent: "_Parent") -> None:
    """Run the worker to its end, and report its counters."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    reporting = asyncio.create_task(_report_tally(worker, parent))
    try:
        await worker.run()
    except BaseExceptionGroup as group:
        if group.subgroup(OutputClosed) is None:
            raise
        parent.send(WorkerReport(closed=True))
    finally:
        reporting.cancel()
        tally = worker.tally()
        parent.send(WorkerReport(tally=tally))
        if tally.abandoned:  # an output that accepts nothing may not close either
            exit_within(GRACE_SECONDS, "", 0)  # 0: the parent must not start the process again


def _open_worker(
    settings: Settings, command: WorkerCommand, frontier: ValkeyFrontier, parent: "_Parent", seen: SeenTable | None
) -> AbstractAsyncContextManager[Worker]:
    """Return a worker that publishes its pages on the bus, or one that writes them to the outputs of the settings."""
    if command.bus:
        from gossamer.wiring.service import open_bus_worker  # imported late: it loads the services

        return open_bus_worker(
            settings, frontier, command.address, pool=command.pool, spiders=command.spiders, say=parent.say, seen=seen
        )
    return open_worker(
        settings, frontier, pool=command.pool, spiders=command.spiders, run=command.run, say=parent.say, seen=seen
    )


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


class _Lifeline(asyncio.Protocol):
    """Standard input, which ends when the parent ends, for whatever reason."""

    def __init__(self, on_end: Callable[[], object]) -> None:
        self.on_end = on_end
        """Ends this process."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Hook of asyncio: standard input has ended."""
        self.on_end()
