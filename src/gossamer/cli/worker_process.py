"""The hidden command behind --processes: one worker that is told what to do on standard input."""

import asyncio
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager

import msgspec

from gossamer.cli import signals
from gossamer.cli.interruption import GRACE_SECONDS
from gossamer.cli.loop import run as run_loop
from gossamer.errors import OutputClosed, SinkError
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.settings import Settings
from gossamer.telemetry import logs
from gossamer.wiring.joining import connect
from gossamer.wiring.parts import working
from gossamer.wiring.processes import Errand, Word
from gossamer.worker.worker import Worker

REPORT_SECONDS = 0.5


def worker_process() -> None:
    """One of several worker processes; started by `gossamer crawl --processes N`."""
    errand = msgspec.json.decode(sys.stdin.buffer.readline(), type=Errand)
    settings = Settings.model_validate(errand.settings)
    logs.set_up(settings.log_level, form=settings.log_format)
    run_loop(_work(settings, errand))


async def _work(settings: Settings, errand: Errand) -> None:
    status = _Status(errand.status_fd)
    frontier = await connect(settings, errand.address)
    try:
        async with _worker(settings, errand, frontier, status) as worker:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, worker.stop)
            # Standard input ends when the parent does, however it ended.
            watching, _ = await loop.connect_read_pipe(lambda: _UntilClosed(worker), sys.stdin)
            reporting = asyncio.create_task(_report(worker, status))
            try:
                await worker.run()
            except BaseExceptionGroup as group:
                if group.subgroup(OutputClosed) is None:
                    raise
                status.tell(Word(closed=True))
            finally:
                reporting.cancel()
                watching.close()
                tally = worker.tally()
                status.tell(Word(tally=tally))
                if tally.given_up:  # what takes nothing may not let itself be closed either
                    signals.end_within(GRACE_SECONDS, "", 0)
        status.tell(Word(tally=worker.tally()))  # again: closing the outputs counts what is missing from them
    except SinkError as error:
        status.tell(Word(fault=error.detail))
    finally:
        await frontier.close()


def _worker(
    settings: Settings, errand: Errand, frontier: ValkeyFrontier, status: "_Status"
) -> AbstractAsyncContextManager[Worker]:
    if errand.bus:
        from gossamer.wiring.service import serving  # the services' libraries are for those who need them

        return serving(settings, frontier, errand.address, pool=errand.pool, spiders=errand.spiders, say=status.say)
    return working(settings, frontier, pool=errand.pool, spiders=errand.spiders, run=errand.run, say=status.say)


async def _report(worker: Worker, status: "_Status") -> None:
    while True:
        status.tell(Word(tally=worker.tally()))
        await asyncio.sleep(REPORT_SECONDS)


class _Status:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def say(self, sentence: str) -> None:
        self.tell(Word(say=sentence))

    def tell(self, word: Word) -> None:
        try:
            os.write(self._descriptor, msgspec.json.encode(word) + b"\n")
        except OSError:
            self._descriptor = -1  # the parent is gone; standard input says so too


class _UntilClosed(asyncio.Protocol):
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def connection_lost(self, exc: Exception | None) -> None:
        self._worker.stop()
