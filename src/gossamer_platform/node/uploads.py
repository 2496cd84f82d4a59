"""Sends the logs and items of a node's attempts to the manager: while they grow, and to their ends.

    FOLDER/JOB-ATTEMPT/log, items.jl

The files themselves are the buffer: what is not confirmed stays in them, however long the manager is away, and the
manager says from which byte on it lacks something. So nothing else is kept, and a node that starts again continues. The
files of an attempt are deleted when the manager has them completely; the end of an attempt waits for that, but not for
ever. Memory is bounded: a few parts are in memory at a time.

Fixed: symbolic links are never followed, because a job owns its files and could make the node send those of others.
"""

import asyncio
import contextlib
import logging
import os
import random
import shutil
import stat
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from gossamer.pauses import happens_within
from gossamer_platform.link import AttemptId, LinkRefused, ManagerUnavailable, UnknownAttempt

log = logging.getLogger("gossamer.platform.node")

PART_BYTES: Final = 4 * 1024 * 1024
"""Longest part that is sent at a time. Must not exceed what managers accept (wire.MAX_PART_BYTES)."""
_PAUSE_SECONDS: Final = 3.0
"""Longest time for which bytes wait until more have come. Each part is an object of the storage."""
_LOOK_SECONDS: Final = 0.5
"""Pause between two looks at the files of an attempt."""
_END_SECONDS: Final = 60.0
"""Time that the end of an attempt waits for the rest of its files. They are sent after that, too."""
_RETRY_SECONDS: Final = (1.0, 15.0)
"""Shortest and longest pause before a part is sent again."""
_PARTS: Final = 4
"""Parts that are in memory at a time."""
_LEFT_BYTES: Final = 10 * 1024**3
"""Bytes of files of ended attempts that wait for a manager; beyond that, the oldest are deleted."""

SendPart = Callable[[AttemptId, str, int, bytes, bool], Awaitable[int]]
"""Sends bytes of a file (attempt, kind, offset, content, lost) and returns the end of what the manager has. `lost`:
what the manager lacks before the offset does not exist any more. Raises ManagerUnavailable, LinkRefused or
UnknownAttempt."""


class FileUploader:
    """Sends the log and the items of attempts to the manager while they grow, from copies below a folder."""

    def __init__(self, folder: Path, attempts: Path, send: SendPart) -> None:
        """`attempts`: folder with the attempts that the agent has, by the same names."""
        self._folder = folder
        self._attempts = attempts
        self._send = send
        self._uploads: dict[AttemptId, _AttemptUpload] = {}
        self._memory = asyncio.Semaphore(_PARTS)
        self._found = _names(folder)
        """Folders of an earlier process whose attempts the agent may adopt or give up."""

    def begin(self, attempt: AttemptId, output: str, items: str) -> None:
        """Follow these files; an empty name means none. May be repeated for one attempt."""
        if attempt not in self._uploads:
            files = {kind: Path(file) for kind, file in (("log", output), ("items", items)) if file}
            self._start(attempt, files)

    def _start(self, attempt: AttemptId, files: dict[str, Path]) -> "_AttemptUpload":
        upload = _AttemptUpload(attempt, self._folder / str(attempt), files, self._send, self._memory)
        self._uploads[attempt] = upload
        upload.task.add_done_callback(lambda _: self._uploads.pop(attempt, None))
        return upload

    async def complete(self, attempt: AttemptId) -> None:
        """Wait until the manager has all files of an attempt that has ended, but not longer than a limit. What it lacks
        then is sent later."""
        upload = self._uploads.get(attempt)
        if upload is None:
            return
        upload.ended.set()
        await asyncio.wait({upload.task}, timeout=_END_SECONDS)
        if not upload.task.done():
            log.warning(
                "the log or the items of attempt %d of job %d could not be sent within %g seconds; they are sent later",
                attempt.number,
                attempt.job,
                _END_SECONDS,
            )
            await asyncio.to_thread(self._bound_leftovers)

    async def run(self, stopping: asyncio.Event) -> None:
        """Send what an earlier process has left, until `stopping` is set. Then all sending ends; the next process
        continues."""
        while not stopping.is_set():
            for name in sorted(self._found):
                attempt = AttemptId.parse(name)
                if attempt is None or attempt in self._uploads:
                    self._found.discard(name)
                elif not (self._attempts / name).exists():  # the agent has not adopted it, or has removed it
                    self._found.discard(name)
                    folder = self._folder / name
                    self._start(attempt, {"log": folder / "log", "items": folder / "items.jl"}).ended.set()
            await happens_within(stopping, _PAUSE_SECONDS)
        tasks = [upload.task for upload in self._uploads.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _bound_leftovers(self) -> None:
        """Delete the oldest files of ended attempts if all of them together take too much space."""
        ended = [upload for upload in list(self._uploads.values()) if upload.ended.is_set()]
        sizes = {upload: upload.size() for upload in ended}
        for upload in ended:  # in the order of their begin
            if sum(sizes.values()) <= _LEFT_BYTES:
                return
            log.error(
                "the files of job %d wait for a manager, and all that wait take more than %d bytes: they are deleted",
                upload.attempt.job,
                _LEFT_BYTES,
            )
            sizes.pop(upload)
            upload.drop()


class _FollowedFile:
    """Position in one file. Offsets count all bytes that the file ever had, also if the job has cut it off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position: int | None = None
        """Offset of the first byte that the manager lacks. None: not known yet."""
        self.base = 0
        """Offset of the file's first byte. Not 0: the job has cut the file off, and has begun anew."""
        self.sent_at = 0.0
        """Time of the last part."""

    def read(self, length: int) -> bytes:
        """Return bytes from the position on. None are there: the file is missing, or is no regular file."""
        assert self.position is not None
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                return b""
            if self.base + found.st_size < self.position:
                self.base = self.position
            start = max(self.position - self.base, 0)
            return os.pread(descriptor, length, start)
        finally:
            os.close(descriptor)


class _AttemptUpload:
    """Sends the files of one attempt."""

    def __init__(
        self, attempt: AttemptId, folder: Path, files: dict[str, Path], send: SendPart, memory: asyncio.Semaphore
    ) -> None:
        self.attempt = attempt
        self.ended = asyncio.Event()
        """Set: the files do not grow any more."""
        self._folder = folder
        self._files = {kind: _FollowedFile(path) for kind, path in files.items()}
        self._send = send
        self._memory = memory
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        pause = _RETRY_SECONDS[0]
        while True:
            is_ended = self.ended.is_set()  # before the look: what was written before the end is seen
            try:
                was_sent = [await self._step(kind, file, is_ended) for kind, file in self._files.items()]
            except UnknownAttempt as error:
                log.warning("files of job %d are of no use: %s", self.attempt.job, error)
                break
            except Exception as error:  # whatever it is, the files must not wait for the node's next start
                is_outage = isinstance(error, ManagerUnavailable | LinkRefused)
                level = logging.DEBUG if is_outage else logging.ERROR
                log.log(level, "files of job %d cannot be sent at present: %r", self.attempt.job, error)
                # Of many attempts, not all may ask a manager that is back at the same moment.
                await asyncio.sleep(pause * random.uniform(0.7, 1.3))
                pause = min(2 * pause, _RETRY_SECONDS[1])
                continue
            pause = _RETRY_SECONDS[0]
            if any(was_sent):
                continue
            if is_ended:
                break
            await happens_within(self.ended, _LOOK_SECONDS)
        if self.ended.is_set():
            await asyncio.to_thread(shutil.rmtree, self._folder, True)

    async def _step(self, kind: str, file: _FollowedFile, is_ended: bool) -> bool:
        """Send the next part of a file, if there is one that should not wait for more. Return whether one was sent."""
        if file.position is None:
            file.position = await self._send(self.attempt, kind, 0, b"", False)
        async with self._memory:
            content = await asyncio.to_thread(file.read, PART_BYTES)
            if not content:
                return False
            is_due = is_ended or len(content) == PART_BYTES or time.monotonic() - file.sent_at >= _PAUSE_SECONDS
            if not is_due:
                return False
            lost = file.position < file.base
            offset = max(file.position, file.base)
            file.position = await self._send(self.attempt, kind, offset, content, lost)
        file.sent_at = time.monotonic()
        return True

    def size(self) -> int:
        """Return the bytes that the files take."""
        found = 0
        for file in self._files.values():
            with contextlib.suppress(OSError):
                found += file.path.lstat().st_size
        return found

    def drop(self) -> None:
        """Delete the files. Call this only when the attempt has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)


def _names(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return set()
