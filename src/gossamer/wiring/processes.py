"""Several worker processes under one that watches: a dead one is replaced, and their counters are added up."""

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

log = logging.getLogger("gossamer")

COMMAND = "worker-process"
QUICK_SECONDS = 5.0
"""A process that dies sooner than this after its start has a fault of its own."""
QUICK_DEATHS = 5
_LONGEST_PAUSE_SECONDS = 10.0


class WorkerCommand(msgspec.Struct, kw_only=True):
    """What a worker process is told on its standard input, which stays open as long as its parent lives."""

    settings: dict[str, Any]
    address: str
    pool: str
    spiders: list[str]
    run: Run | None
    status_fd: int
    bus: bool = False
    """Pages go to the bus."""


class WorkerReport(msgspec.Struct, omit_defaults=True):
    """What it tells its parent, a line of JSON each."""

    tally: Tally | None = None
    say: str = ""
    closed: bool = False
    """The reader closed the output: this process ended, and so should the others."""
    fault: str = ""
    """Why an output is not finished."""


class WorkerProcesses:
    """Runs `count` of them until all end by themselves or `stop`. They get no Ctrl-C of the terminal: we are told."""

    def __init__(
        self,
        settings: Settings,
        address: str,
        *,
        pool: str,
        spiders: list[str],
        run: Run | None,
        say: Callable[[str], None],
        bus: bool = False,
    ) -> None:
        self._settings = settings
        self._errand = WorkerCommand(
            settings=settings.model_dump(mode="json"),
            address=address,
            pool=pool,
            spiders=spiders,
            run=run,
            status_fd=-1,
            bus=bus,
        )
        self._say = say
        self._said: set[str] = set()
        self._alive: dict[int, asyncio.subprocess.Process] = {}
        self._current: dict[int, Tally] = {}
        self._gone = Tally()
        self._stopping = asyncio.Event()
        self._closed = False
        self.fault = ""
        """Why an output is not finished; its records are kept until it can be. Empty: it is, as far as it is over."""

    def tally(self) -> Tally:
        """All processes together, dead ones included."""
        total = self._gone
        for tally in self._current.values():
            total = total.plus(tally)
        return total

    def pids(self) -> list[int]:
        """Of the processes that live now."""
        return [process.pid for process in self._alive.values()]

    async def run(self) -> None:
        """Until all have ended well. Raises WorkerFailed when one dies at its start again and again; OutputClosed in a
        group when nobody reads the output any more."""
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(self._settings.worker.processes):
                    group.create_task(self._keep(number))
        except* WorkerFailed as failures:
            raise failures.exceptions[0] from None
        finally:
            for process in list(self._alive.values()):
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()

    def stop(self) -> None:
        """Drain all of them. May be repeated."""
        self._stopping.set()
        for process in self._alive.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()

    async def _keep(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        quick = 0
        while True:
            began = loop.time()
            code = await self._live(number)
            if self._closed:
                raise OutputClosed
            if code == 0 or self._stopping.is_set():
                return
            quick = quick + 1 if loop.time() - began < QUICK_SECONDS else 0
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            if quick >= QUICK_DEATHS:
                raise WorkerFailed(f"the last one by {how}")
            log.warning("%s %d: %s", names.PROCESS_DIED, number, how)
            self._say(f"A worker process died ({how}); starting another. Nothing is lost.")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.1 * 2**quick, _LONGEST_PAUSE_SECONDS)):
                    await self._stopping.wait()
                    return

    async def _live(self, number: int) -> int:
        read_fd, write_fd = os.pipe()
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "gossamer",
                COMMAND,
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
            errand = msgspec.structs.replace(self._errand, status_fd=write_fd)
            process.stdin.write(msgspec.json.encode(errand) + b"\n")
            if self._stopping.is_set():
                process.terminate()
            with contextlib.suppress(ValueError):  # a torn line of a killed process
                await self._listen(number, reader)
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
                self._gone = self._gone.plus(last.without_current())

    async def _listen(self, number: int, reader: asyncio.StreamReader) -> None:
        decoder = msgspec.json.Decoder(WorkerReport)
        while line := await reader.readline():
            word = decoder.decode(line)
            if word.tally is not None:
                self._current[number] = word.tally
            self._closed = self._closed or word.closed
            self.fault = word.fault or self.fault
            if word.say and word.say not in self._said:
                # All processes meet the same trouble; a person hears of it once.
                self._said.add(word.say)
                asyncio.get_running_loop().call_later(10.0, self._said.discard, word.say)
                self._say(word.say)
