"""Runs worker processes under one parent, which restarts dead ones and adds up their counters."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from gossamer.errors import OutputClosed, WorkerFailed
from gossamer.model.crawl import Run
from gossamer.settings import Settings
from gossamer.telemetry import logs as names
from gossamer.telemetry.tally import Tally
from gossamer.wiring import WORKER_PROCESS

log = logging.getLogger("gossamer")

QUICK_SECONDS = 5.0
"""A process that dies sooner than this after its start counts as a failed start."""
QUICK_DEATHS = 5
"""Failed starts in a row of one process after which the command gives up."""
_LONGEST_PAUSE_SECONDS = 10.0
_REPEAT_AFTER_SECONDS = 10.0
"""Time for which the same sentence of several processes is shown once."""


class WorkerCommand(msgspec.Struct, kw_only=True):
    """Orders for a worker process, one line of JSON on its standard input, which stays open while the parent lives."""

    settings: dict[str, Any]
    address: str
    """Address of the frontier."""
    pool: str
    spiders: list[str]
    run: Run | None
    report_fd: int
    """File descriptor to which the process writes its reports."""
    bus: bool = False
    """True: pages go to the bus."""


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """A message from a worker process to its parent, one line of JSON."""

    tally: Tally | None = None
    say: str = ""
    """A sentence to show."""
    closed: bool = False
    """The reader of the output went away: this process ended, and the others have to end."""
    fault: str = ""
    """The reason why an output is not finished. Empty: no such trouble."""


class WorkerProcesses:
    """Runs `worker.processes` worker processes until all end by themselves or `stop` is called.

    They run in sessions of their own, so that Ctrl-C in the terminal reaches only the parent.
    """

    def __init__(
        self,
        settings: Settings,
        address: str,
        *,
        pool: str,
        spiders: list[str],
        run: Run | None,
        say: Callable[[str], None],
        bus: bool,
    ) -> None:
        self._settings = settings
        self._command = WorkerCommand(
            settings=settings.model_dump(mode="json"),
            address=address,
            pool=pool,
            spiders=spiders,
            run=run,
            report_fd=-1,
            bus=bus,
        )
        self._say = say
        self._recent_sentences: set[str] = set()
        self._alive: dict[int, asyncio.subprocess.Process] = {}
        self._current: dict[int, Tally] = {}
        self._ended = Tally()
        self._stopping = asyncio.Event()
        self._output_closed = False
        self.fault = ""
        """The reason why an output is not finished; its records are kept until it can be. Empty: no such trouble."""

    def tally(self) -> Tally:
        """Return the sum over all processes, dead ones included."""
        total = self._ended
        for tally in self._current.values():
            total = total.plus(tally)
        return total

    async def run(self) -> None:
        """Run until all processes have ended normally. Raises WorkerFailed when one keeps dying at its start;
        OutputClosed, in a group, when the reader of the output went away."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.worker.processes):
                    group.create_task(self._keep_alive(number))
        except* WorkerFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            for process in list(self._alive.values()):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def stop(self) -> None:
        """Tell all processes to finish their requests and end. May be repeated."""
        self._stopping.set()
        for process in self._alive.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep_alive(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        quick_deaths = 0
        while True:
            started = loop.time()
            code = await self._run_process(number)
            if self._output_closed:
                raise OutputClosed
            if code == 0 or self._stopping.is_set():
                return
            quick_deaths = quick_deaths + 1 if loop.time() - started < QUICK_SECONDS else 0
            cause = f"signal {-code}" if code < 0 else f"exit code {code}"
            if quick_deaths >= QUICK_DEATHS:
                raise WorkerFailed(f"the last one by {cause}")
            log.warning("%s %d: %s", names.PROCESS_DIED, number, cause)
            self._say(f"A worker process died ({cause}); starting another. Nothing is lost.")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.1 * 2**quick_deaths, _LONGEST_PAUSE_SECONDS)):
                    await self._stopping.wait()
                    return

    async def _run_process(self, number: int) -> int:
        read_fd, write_fd = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gossamer",
                WORKER_PROCESS,
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(write_fd,),
                start_new_session=True,
            )
        except BaseException:
            os.close(read_fd)
            raise
        finally:
            os.close(write_fd)
        self._alive[number] = process
        reader = asyncio.StreamReader(limit=1 << 20)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb")
        )
        try:
            assert process.stdin
            command = msgspec.structs.replace(self._command, report_fd=write_fd)
            process.stdin.write(msgspec.json.encode(command) + b"\n")
            if self._stopping.is_set():
                process.terminate()
            with contextlib.suppress(ValueError):  # the incomplete last line of a killed process
                await self._read_reports(number, reader)
            return await process.wait()
        finally:
            transport.close()
            if process.stdin:
                process.stdin.close()
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._alive.pop(number, None)
            last = self._current.pop(number, None)
            if last is not None:
                self._ended = self._ended.plus(last.without_current())

    async def _read_reports(self, number: int, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.json.Decoder(WorkerReport)
        while line := await reader.readline():
            report = decoder.decode(line)
            if report.tally is not None:
                self._current[number] = report.tally
            self._output_closed = self._output_closed or report.closed
            self.fault = report.fault or self.fault
            if report.say and report.say not in self._recent_sentences:
                # All processes meet the same trouble; show it once.
                self._recent_sentences.add(report.say)
                asyncio.get_running_loop().call_later(_REPEAT_AFTER_SECONDS, self._recent_sentences.discard, report.say)
                self._say(report.say)
