"""Pool of child processes that extract the main content of pages, each page within limits of CPU time and memory.

A page that exceeds a limit ends its process, and a fresh one takes the next page. The pool starts processes when there
are pages, and ends them when there have been none for a while. Fixed: every page gets an answer, whatever it does to
its process; pages of one group (a crawl) do not make those of another wait for more than their turn; and no process
outlives the pool, even if this process is killed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Hashable
from importlib.util import find_spec

import msgspec

from gossamer.errors import BadInput
from gossamer.extract.content_process import (
    FRAME_HEADER_BYTES,
    MAX_REPLY_BYTES,
    MEMORY_EXIT,
    ContentReply,
    ContentRequest,
    ProcessLimits,
    frame,
    frame_length,
)
from gossamer.extras import install_advice
from gossamer.model.content import ContentError, ContentOptions, PageContent

log = logging.getLogger("gossamer.worker")

_IN_FLIGHT = 2
"""Pages that a process is sent at once: one that it reads and one that waits in its pipe, so that it never waits for
this process. Must be at least 1."""
_IDLE_SECONDS = 60.0
"""Time without a page after which a process ends. Longer keeps its memory, about 70 MB, for longer."""
_START_SECONDS = 60.0
"""Longest start of a process. Must exceed that of a busy machine."""
_MAX_FAILED_STARTS = 3
"""Failed starts in a row after which a page gets no content."""
_FAILED_START_PAUSE_SECONDS = 0.2
"""Pause after the first failed start; it doubles with each further one."""
_STALLED_FACTOR = 20.0
"""A process that has not answered after this factor times its limit of CPU time is killed: it waits for something that
never comes. Must be far above what a page takes on a busy machine."""
_STALLED_SECONDS = 60.0
"""Shortest time after which it is killed, however small its limit of CPU time. Must be far above that, too."""
_EXIT_SECONDS = 1.0
"""Wait for the exit code of a process that closed its output while it had pages: the code says why it died. With less,
a busy machine more often gives a page another process, though the first one exceeded a limit."""
_MAX_CRASHES = 2
"""Processes that may die of unknown reasons on one page before it counts as the cause. Must be at least 1."""


def has_trafilatura() -> bool:
    """Return whether the library that extracts text is installed."""
    return find_spec("trafilatura") is not None


def require_trafilatura() -> None:
    """Raise BadInput if the library that extracts text is not installed."""
    if not has_trafilatura():
        raise BadInput(f"text and Markdown need trafilatura: {install_advice('text')}")


class ContentLimits(msgspec.Struct, frozen=True):
    """Size of a pool, and limits for each page."""

    processes: int
    """Maximum number of processes."""
    cpu_seconds: float
    memory_bytes: int


class _Job(msgspec.Struct, eq=False):
    """A page that waits for its content."""

    framed: bytes
    """The request as it goes through the pipe to a process."""
    group: Hashable
    answer: "asyncio.Future[ContentReply]"
    crashes: int = 0
    """Number of processes that died of unknown reasons on this page."""


class _Child(msgspec.Struct, eq=False):
    """A process, and the pages that it has been sent, the one that it works on first."""

    process: asyncio.subprocess.Process
    jobs: deque[_Job] = msgspec.field(default_factory=deque)
    was_stalled: bool = False
    """True: it did not answer in time."""


class ContentPool:
    """Extracts the content of pages in child processes. All calls come from one event loop."""

    def __init__(self, limits: ContentLimits) -> None:
        self._limits = limits
        self._groups: dict[Hashable, deque[_Job]] = {}
        """Waiting pages by group; the group whose turn it is comes first."""
        self._waiting = 0
        """Number of pages in `_groups`."""
        self._work = asyncio.Event()
        """Set while pages may wait."""
        self._idle = 0
        """Number of running processes without a page."""
        self._tasks: set[asyncio.Task[None]] = set()
        """One for each process that runs or is being started."""
        self._failed_starts = 0
        """Failed starts in a row, of all tasks."""
        self._closed = False
        self.pids: set[int] = set()
        """Process ids of the children."""

    @property
    def waiting(self) -> int:
        """Number of pages that no process has been sent yet."""
        return self._waiting

    async def extract(
        self, body: bytes, *, encoding: str, url: str, options: ContentOptions, group: Hashable = None
    ) -> ContentReply:
        """Return the content of an HTML page. Never raises for the page: content that is missing has an `error`.

        Waits for a free process; `group`: pages of different groups take turns.
        """
        framed = frame(ContentRequest(body, encoding, url, options))
        answer: asyncio.Future[ContentReply] = asyncio.get_running_loop().create_future()
        self._put(_Job(framed, group, answer))
        if len(self._tasks) < self._limits.processes and self._waiting > self._idle:
            task = asyncio.create_task(self._work_until_idle())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def close(self) -> None:
        """Kill the processes. Pages that wait are cancelled. May be repeated."""
        self._closed = True
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while (job := self._take()) is not None:
            job.answer.cancel()

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _put(self, job: _Job, *, first: bool = False) -> None:
        """Let a page wait for a process. `first`: before the others of its group."""
        queue = self._groups.setdefault(job.group, deque())
        (queue.appendleft if first else queue.append)(job)
        self._waiting += 1
        self._work.set()

    def _take(self) -> _Job | None:
        """Return the next page: groups take turns. None: no page waits."""
        while self._groups:
            group = next(iter(self._groups))
            queue = self._groups.pop(group)
            job = queue.popleft()
            self._waiting -= 1
            if queue:
                self._groups[group] = queue
            if not job.answer.done():  # not cancelled
                return job
        self._work.clear()
        return None

    # --- processes ----------------------------------------------------------------------------------------------------

    async def _work_until_idle(self) -> None:
        """Run one process after the other while there are pages: the body of a task, for each process."""
        while not self._closed:
            try:
                child = await self._start()
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                await self._handle_failed_start(error)
                if not self._waiting:
                    return
                continue
            self._failed_starts = 0
            try:
                is_idle = await self._serve(child)
            except (OSError, ValueError, asyncio.IncompleteReadError):
                is_idle = False  # the process died
            finally:
                await self._end(child)
            if is_idle:
                return

    async def _start(self) -> _Child:
        """Start a process, and wait until it is ready."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gossamer.extract.content_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=MAX_REPLY_BYTES,
        )
        child = _Child(process)
        self.pids.add(process.pid)
        try:
            self._send(child, ProcessLimits(self._limits.cpu_seconds, self._limits.memory_bytes, os.getpid()))
            async with asyncio.timeout(_START_SECONDS):
                await _read_reply(child)
        except BaseException:
            await self._end(child)
            raise
        return child

    async def _handle_failed_start(self, error: Exception) -> None:
        """Pause before the next start; after some failures, give one page up instead."""
        self._failed_starts += 1
        log.warning("a process that extracts text did not start: %s: %s", type(error).__name__, error)
        if self._failed_starts < _MAX_FAILED_STARTS:
            await asyncio.sleep(_FAILED_START_PAUSE_SECONDS * 2 ** (self._failed_starts - 1))
        elif (job := self._take()) is not None:
            job.answer.set_result(ContentReply(PageContent(error=ContentError.UNAVAILABLE)))

    async def _serve(self, child: _Child) -> bool:
        """Send pages to the process, and return its answers to their callers. Returns True when there have been no
        pages for a while, False when the process is to be replaced. Raises when it dies."""
        while True:
            self._fill(child)
            if not child.jobs:
                if not await self._wait_for_work():
                    return True
                continue
            reply = await self._answer(child)
            job = child.jobs.popleft()
            if not job.answer.done():
                job.answer.set_result(reply)
            if reply.is_last:
                return False

    def _fill(self, child: _Child) -> None:
        """Send the process pages, except those that processes without any will take."""
        while len(child.jobs) < _IN_FLIGHT and (not child.jobs or self._waiting > self._idle):
            job = self._take()
            if job is None:
                return
            child.jobs.append(job)
            assert child.process.stdin is not None
            child.process.stdin.write(job.framed)

    async def _wait_for_work(self) -> bool:
        """Wait for a page. Returns False when none came for a while."""
        self._idle += 1
        try:
            async with asyncio.timeout(_IDLE_SECONDS):
                await self._work.wait()
        except TimeoutError:
            return False
        finally:
            self._idle -= 1
        return True

    async def _answer(self, child: _Child) -> ContentReply:
        """Return the process's next answer. Raises OSError if it does not come in time."""
        limit = max(_STALLED_SECONDS, _STALLED_FACTOR * self._limits.cpu_seconds)
        try:
            async with asyncio.timeout(limit):
                return await _read_reply(child)
        except TimeoutError:
            child.was_stalled = True
            raise OSError("the process does not answer") from None

    def _send(self, child: _Child, message: msgspec.Struct) -> None:
        assert child.process.stdin is not None
        child.process.stdin.write(frame(message))

    async def _end(self, child: _Child) -> None:
        """End a process, and handle the pages that it still had: the first is why it died, if it died."""
        process = child.process
        with contextlib.suppress(TimeoutError, asyncio.CancelledError):
            if not self._closed and not child.was_stalled and child.jobs:
                async with asyncio.timeout(_EXIT_SECONDS):
                    await process.wait()
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.stdin is not None:
            process.stdin.close()
        code = await process.wait()
        self.pids.discard(process.pid)
        if self._closed or not child.jobs:
            for job in child.jobs:
                job.answer.cancel()
            return
        self._handle_death(child, code)

    def _handle_death(self, child: _Child, code: int) -> None:
        """Let the pages of a process that has ended wait again, except the one that it worked on if that is the cause:
        it exceeded a limit, or several processes died on it."""
        jobs = list(child.jobs)
        child.jobs.clear()
        if code != 0 or child.was_stalled:
            first = jobs[0]
            error = _cause(code, stalled=child.was_stalled)
            first.crashes += 1
            if error is not ContentError.CRASHED or first.crashes >= _MAX_CRASHES:
                jobs = jobs[1:]
                if not first.answer.done():
                    first.answer.set_result(ContentReply(PageContent(error=error)))
        for job in reversed(jobs):
            self._put(job, first=True)


def _cause(code: int, *, stalled: bool) -> ContentError:
    """Return why a process ended with this exit code, on the page that it worked on."""
    if stalled or code == -signal.SIGPROF:
        return ContentError.CPU
    return ContentError.MEMORY if code == MEMORY_EXIT else ContentError.CRASHED


async def _read_reply(child: _Child) -> ContentReply:
    """Return the next reply of a process. Raises IncompleteReadError when the process has ended."""
    source = child.process.stdout
    assert source is not None
    length = frame_length(await source.readexactly(FRAME_HEADER_BYTES))
    return msgspec.msgpack.decode(await source.readexactly(length), type=ContentReply)
