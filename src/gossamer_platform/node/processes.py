"""Processes of this machine, as /proc shows them: which exist, which is which, and killing those of one attempt.

Linux only. A pid alone names no process, because the system uses numbers again: start time and boot belong to it.
Fixed: that processes are looked for again after each round of killing, because one that is killed may have started
another one in between.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gossamer_platform.node import shim
from gossamer_platform.node.shim import PR_SET_CHILD_SUBREAPER, boot_id, start_time

_ROUND_SECONDS: Final = 0.05
"""Pause between two rounds of killing."""


def is_alive(pid: int, start: str, boot: str) -> bool:
    """Return whether this process of this boot still exists and is not a zombie."""
    if boot != boot_id() or not start or start_time(pid) != start:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_strays(mark: str) -> int:
    """Kill all processes that have `mark` in their environment, until none is left. Return the number of those killed.

    Used when the shim that would have killed them is gone. Not by their process group: after the end of a group, the
    system gives its number to another.
    """
    killed: set[int] = set()
    while found := set(_strays(mark.encode())):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(_ROUND_SECONDS)
    return len(killed)


def _strays(mark: bytes) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            is_dead = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if not is_dead and mark in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                yield int(entry)


class Children:
    """Shims that this process has started, and orphans that it inherits.

    A process that has left its group and its environment is found by nothing but its parent. Its shim is that parent;
    after the shim's death it is this process, if `inherit` was called. So every child that is no shim is an orphan of a
    shim that is dead.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while a child may exist that is not in the set yet."""
        self._shims: set[int] = set()
        self._inherits = False
        self._spare: tuple[subprocess.Popen[bytes], int] | None = None
        """Shim that waits for an attempt, with the descriptor that `start_shim` returns."""

    def inherit(self) -> None:
        """Become the parent of orphans from now on. The process must have no other children than shims."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._inherits = True

    def start_shim(self, folder: str) -> "tuple[subprocess.Popen[bytes], int]":
        """Start the shim of the attempt in a folder, or use the one that waits. Return its process, and a file
        descriptor that ends when the job's process runs, or the shim has ended."""
        with self._lock:
            spare, self._spare = self._spare, None
        if spare is not None:
            process, started = spare
            assert process.stdin is not None
            try:
                with process.stdin as way:
                    way.write(f"{folder}\n".encode())
                return spare
            except OSError:  # it was killed while it waited
                os.close(started)
                self.reap(process)
        return self._start([folder], stdin=subprocess.DEVNULL)

    def keep_spare(self, attempts: Path) -> None:
        """Have a shim wait for the next attempt, whose folder will be below `attempts`. Nothing happens if one does."""
        if self._spare is None:
            spare = self._start(["--wait", f"{attempts}/"], stdin=subprocess.PIPE)
            with self._lock:
                self._spare, spare = spare, self._spare
            self._dismiss(spare)

    def dismiss_spare(self) -> None:
        """End the shim that waits, if one does."""
        with self._lock:
            spare, self._spare = self._spare, None
        self._dismiss(spare)

    def _dismiss(self, spare: "tuple[subprocess.Popen[bytes], int] | None") -> None:
        if spare is not None:
            process, started = spare
            process.kill()
            os.close(started)
            self.reap(process)

    def _start(self, arguments: list[str], *, stdin: int) -> "tuple[subprocess.Popen[bytes], int]":
        read, write = os.pipe()
        try:
            with self._lock:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", shim.__file__, *arguments],
                    stdin=stdin,
                    stdout=write,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C and the end of a terminal do not reach it
                    env={"PATH": os.environ.get("PATH", os.defpath)},
                    bufsize=0,
                )
                self._shims.add(process.pid)
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        return process, read

    def reap(self, process: "subprocess.Popen[bytes]") -> None:
        """Wait for the end of a shim."""
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._shims.discard(process.pid)

    def kill_orphans(self) -> int:
        """Kill and reap the orphans, and theirs, until none is left. Return the number of those killed."""
        count = 0
        with self._lock:
            while self._inherits and (orphans := _children() - self._shims):
                for pid in orphans:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                for pid in orphans:
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, 0)
                        count += 1
        return count


CHILDREN: Final = Children()
"""Those of this process."""


def _children() -> set[int]:
    found: set[int] = set()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError):  # a thread that has just ended
            found.update(map(int, Path(f"/proc/self/task/{task}/children").read_text().split()))
    return found
