"""Item pipeline and pool of external programs that answer each line on stdin with a line on stdout.

Programs are started when the crawl starts, and replaced when they die or do not answer in time. An item costs its
line, and is never lost: without an answer after some tries it passes on unchanged.

Fixed: the names of the class, its methods and settings, which projects write.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import shlex
import shutil
import signal
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final, Self

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured

from gossamer.errors import BadSetting
from gossamer.scrapy.options import abort
from gossamer.scrapy.pipelines.background import BackgroundLoop, outcome
from gossamer.scrapy.pipelines.workers import positive

log = logging.getLogger(__name__)

PROGRAM_SETTINGS: Final[dict[str, tuple[Any, str]]] = {
    "PROGRAM_PIPELINE_COMMAND": ("", "Command of the program, with its arguments. Empty: the pipeline is off"),
    "PROGRAM_PIPELINE_PROCESSES": (16, "Programs that run at a time"),
    "PROGRAM_PIPELINE_TIMEOUT": (10, "Seconds for an answer. A program that takes longer is killed and replaced"),
    "PROGRAM_PIPELINE_START_SECONDS": (30, "Seconds for the first answer of a program, its start included"),
    "PROGRAM_PIPELINE_TRIES": (3, "Programs that get the line of an item before the item passes on without an answer"),
    "PROGRAM_PIPELINE_FIELD": ("price", "Field whose value is the line; the answer takes its place"),
}
"""Default and meaning by name."""

_LINE_BYTES: Final = 1 << 20
"""Longest answer. A program that sends a longer line is replaced."""
_ENDING_SECONDS: Final = 1.0
"""Time for a program whose output has ended to end itself; only the log depends on it."""
_RESTART_SECONDS: Final = 0.1
"""Pause before a program is started again that has ended without an answer; doubles up to _RESTART_LONGEST."""
_RESTART_LONGEST: Final = 5.0
_END_SECONDS: Final = 2.0
"""Time for programs to end by themselves when their stdin is closed."""


class ProgramFailed(Exception):
    """The program has ended, or has not answered in time. `was_asked` False: it has not got the line."""

    def __init__(self, reason: str, *, was_asked: bool = True) -> None:
        super().__init__(reason)
        self.was_asked = was_asked


class _Program:
    """One running program, or one that could not be started (`process` None), which answers nothing."""

    def __init__(self, process: asyncio.subprocess.Process | None) -> None:
        self.process = process
        self.has_answered = False

    @classmethod
    async def start(cls, command: list[str]) -> "_Program":
        """Start the program. Raises OSError."""
        # A session of its own: Ctrl-C in the terminal is for Scrapy, whose items still need the program.
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, limit=_LINE_BYTES, start_new_session=True
        )
        return cls(process)

    async def ask(self, line: bytes, timeout_seconds: float) -> bytes:
        """Return the answer to a line, both without their line ends. Raises ProgramFailed."""
        if self.process is None:
            raise ProgramFailed("it could not be started")
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        unasked: bytes | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):  # only what has arrived already
                unasked = await stdout.read(1)
        if unasked:  # it would be taken for the answer to this line
            raise ProgramFailed("it has written a line without being asked")
        if unasked is not None:
            raise ProgramFailed(await self._ending(), was_asked=False)
        try:
            async with asyncio.timeout(timeout_seconds):
                stdin.write(line + b"\n")
                await stdin.drain()
                answer = await stdout.readline()
        except TimeoutError:
            raise ProgramFailed(f"no answer in {timeout_seconds:g} s") from None
        except (OSError, ValueError) as error:  # ValueError: the answer is too long
            raise ProgramFailed(str(error)) from None
        if not answer.endswith(b"\n"):
            raise ProgramFailed(await self._ending())
        self.has_answered = True
        return answer.rstrip(b"\r\n")

    async def _ending(self) -> str:
        """Return how the program, whose output has ended, has ended itself."""
        assert self.process is not None
        try:
            code = await asyncio.wait_for(self.process.wait(), _ENDING_SECONDS)
        except TimeoutError:
            return "it has closed its output"
        return f"it was killed by signal {-code}" if code < 0 else f"it has ended with exit code {code}"

    async def kill(self) -> None:
        """End the program and what it has started. May be repeated."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> None:
        """Close the program's stdin, and kill it if it does not end soon."""
        if self.process is None:
            return
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self.process.wait()
        await self.kill()


class ProgramPool:
    """Pool of programs. All methods belong to one asyncio loop."""

    def __init__(
        self,
        command: list[str],
        *,
        processes: int,
        timeout_seconds: float,
        start_seconds: float,
        tries: int,
        count: Callable[[str], None],
    ) -> None:
        """`count` is called with the name of each event that is counted."""
        self._command = command
        self._timeout_seconds, self._start_seconds, self._tries = timeout_seconds, start_seconds, tries
        self._count = count
        self._idle: deque[_Program] = deque()
        self._changed = asyncio.Semaphore(0)
        """Its value is the number of idle programs."""
        self._live: set[_Program] = set()
        self._tasks = {asyncio.create_task(self._start()) for _ in range(processes)}
        self._failures = 0
        """Programs in a row that have ended without an answer."""

    async def ask(self, line: str) -> str | None:
        """Return a program's answer to the line. None: none has answered, after several tries."""
        data = line.encode(errors="replace")  # pages may have halves of surrogate pairs, which have no UTF-8
        tries = 0
        while tries < self._tries:
            await self._changed.acquire()
            # Programs that are still starting are asked last.
            program = next((one for one in self._idle if one.has_answered), self._idle[0])
            self._idle.remove(program)
            seconds = self._timeout_seconds if program.has_answered else self._start_seconds
            try:
                answer = await program.ask(data, seconds)
            except ProgramFailed as error:
                # One that has ended between two lines costs no try: many may, and their replacements answer.
                tries += error.was_asked or not program.has_answered
                self._count("replaced")
                log.warning("%s: %s; the program is replaced", " ".join(self._command[:2]), error)
                self._failures = 0 if program.has_answered else self._failures + 1
                self._replace(program)
            except BaseException:  # cancelled: its answer would be taken for that of the next line
                self._replace(program)
                raise
            else:
                self._failures = 0
                self._add(program)
                return answer.decode(errors="replace")
        return None

    def kill(self) -> None:
        """End all programs at once. May be called in any thread."""
        for program in list(self._live):
            if program.process is not None and program.process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.process.pid, signal.SIGKILL)

    async def close(self) -> None:
        """End all programs."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(program.end() for program in self._live))

    def _add(self, program: _Program) -> None:
        self._idle.append(program)
        self._changed.release()

    def _replace(self, program: _Program) -> None:
        task = asyncio.create_task(self._start(program))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _start(self, former: _Program | None = None) -> None:
        """Start a program, in place of the former one. One that cannot be started fails the line that it gets, so that
        items do not wait for it for ever."""
        if former is not None:
            await former.kill()
            self._live.discard(former)
        if self._failures:
            await asyncio.sleep(min(_RESTART_SECONDS * 2 ** min(self._failures, 10), _RESTART_LONGEST))
        try:
            program = await _Program.start(self._command)
        except OSError as error:
            self._count("start_failures")
            log.warning("%s cannot be started: %s", self._command[0], error)
            program = _Program(None)
        self._live.add(program)
        self._add(program)


class ProgramPipeline:
    """Asks an external program about each item: `PROGRAM_PIPELINE_COMMAND = "convert-price --factor 1.2"`.

    The line is the value of PROGRAM_PIPELINE_FIELD, and the answer takes its place. Override `line` and `apply` for
    other uses. Counters: `program_pipeline/answers`, `program_pipeline/replaced` (programs that were killed or have
    died), `program_pipeline/start_failures`, `program_pipeline/failures` (items that pass on without an answer).
    """

    name: ClassVar[str] = "program_pipeline"
    """Prefix of the counters and, in capitals, of the settings. Each subclass for another program has its own."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._prefix = self.name.upper()
        text = crawler.settings.get(f"{self._prefix}_COMMAND")
        if not text:
            raise NotConfigured(f"{self._prefix}_COMMAND is not set")
        try:
            command = shlex.split(text) if isinstance(text, str) else [str(part) for part in text]
        except ValueError as error:
            abort(BadSetting(f"{self._prefix}_COMMAND: {error}"))
        if shutil.which(command[0]) is None:
            abort(BadSetting(f"{self._prefix}_COMMAND: there is no program {command[0]!r}"))
        self.field = str(crawler.settings.get(f"{self._prefix}_FIELD") or _default("FIELD"))
        numbers = {
            name: positive(crawler, f"{self._prefix}_{name}", _default(name))
            for name in ("PROCESSES", "TIMEOUT", "START_SECONDS", "TRIES")
        }
        self._loop = BackgroundLoop(self.name)
        # Started here, so that the programs start while the first pages are fetched.
        self._pool = self._loop.submit(self._open(command, numbers))
        # A second Ctrl-C ends the crawl without close_spider, and the programs are in sessions of their own.
        atexit.register(self._kill)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def line(self, item: Any) -> str | None:
        """Return the line for the program. None: the item passes on. A line end in it becomes a space."""
        value = ItemAdapter(item).get(self.field)
        if isinstance(value, list | tuple):
            value = value[0] if value else None
        return None if value is None else str(value)

    def apply(self, item: Any, answer: str) -> Any:
        """Return the item with the program's answer. A number takes the place of a number."""
        adapter = ItemAdapter(item)
        value = adapter.get(self.field)
        is_list = isinstance(value, list | tuple)
        if isinstance(value, list | tuple):
            value = value[0]
        new: Any = answer
        if isinstance(value, int | float):
            with contextlib.suppress(ValueError):
                new = float(answer)
        adapter[self.field] = [new] if is_list else new
        return item

    async def process_item(self, item: Any) -> Any:
        """Return the item with the answer, or unchanged if no program has answered."""
        line = self.line(item)
        if line is None:
            return item
        line = " ".join(line.splitlines())
        answer = await outcome(self._loop.submit(self._ask(line)))
        if answer is None:
            self._stats.inc_value(f"{self.name}/failures")
            log.warning("%s: no program has answered to %.200r; the item stays as it is", self.name, line)
            return item
        self._stats.inc_value(f"{self.name}/answers")
        return self.apply(item, answer)

    async def close_spider(self) -> None:
        """End the programs. Scrapy closes a spider after its last item, so they are idle."""
        await outcome(self._loop.submit(self._close()))
        self._loop.close()
        atexit.unregister(self._kill)

    async def _open(self, command: list[str], numbers: dict[str, int]) -> ProgramPool:
        return ProgramPool(
            command,
            processes=numbers["PROCESSES"],
            timeout_seconds=numbers["TIMEOUT"],
            start_seconds=numbers["START_SECONDS"],
            tries=numbers["TRIES"],
            count=lambda event: self._stats.inc_value(f"{self.name}/{event}"),
        )

    async def _ask(self, line: str) -> str | None:
        return await (await asyncio.wrap_future(self._pool)).ask(line)

    def _kill(self) -> None:
        if self._pool.done() and self._pool.exception() is None:
            self._pool.result().kill()

    async def _close(self) -> None:
        await (await asyncio.wrap_future(self._pool)).close()


def _default(name: str) -> Any:
    return PROGRAM_SETTINGS[f"PROGRAM_PIPELINE_{name}"][0]
