"""The browsers of workers as the system sees them: found, killed and frozen by their processes, and what they leave."""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.chaos.schedule import Kind
from tests.servers.reaper import command_of, descendants

_PR_SET_CHILD_SUBREAPER = 36  # number of Linux's prctl(2)
_LEFT_SECONDS = 20.0
"""Time in which the browser of a worker that was killed must be gone, also one that is frozen."""
_POLL_SECONDS = 0.05
_PREFIX = "/gossamer-browser-"
"""Beginning of the names of profile folders."""
_ANOTHER = """
import asyncio
from gossamer.render.browser import Browser
from gossamer.settings import load
from gossamer.wiring.browser import launch_options

async def start():
    await (await Browser.start(launch_options(load(config=None)))).close()

asyncio.run(start())
"""


class BrowserFolder:
    """Place of the profile folders of a run's browsers, and of what is left of these. A context manager.

    This process adopts the processes of killed workers meanwhile, so that none escapes it.
    """

    def __enter__(self) -> "BrowserFolder":
        # In /tmp, where the user of the browsers reaches it, and can delete folders.
        self.path = Path(tempfile.mkdtemp(prefix="chaos-browsers-", dir="/tmp"))
        self.path.chmod(0o1777)
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return self

    def __exit__(self, *_: object) -> None:
        for pid in _browsers_below(os.getpid()):
            _send(pid, signal.SIGKILL)
        shutil.rmtree(self.path, ignore_errors=True)

    def left(self) -> list[str]:
        """Return the processes and folders that are still there when all workers have ended, and some time later."""
        deadline = time.monotonic() + _LEFT_SECONDS
        while (found := self._left()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            if found and not any(_browsers_below(os.getpid())):
                self._start_another()
        return found

    def _start_another(self) -> None:
        """Start one more browser, which deletes folders of old ones whose janitor was killed, too."""
        hour_ago = time.time() - 3600
        for folder in self.path.iterdir():
            os.utime(folder, (hour_ago, hour_ago))
        subprocess.run([sys.executable, "-c", _ANOTHER], env=os.environ | {"TMPDIR": str(self.path)}, check=True)

    def _left(self) -> list[str]:
        processes = [f"process {pid} is left: {command_of(pid)[:200]}" for pid in _browsers_below(os.getpid())]
        return processes + [f"folder {path.name} is left" for path in self.path.iterdir()]


def find(worker: int, kind: Kind) -> list[int]:
    """Return the processes of a worker's browsers that such a fault may hit."""
    return sorted(pid for pid in descendants(worker) if _is_hit_by(kind, command_of(pid)) and not has_ended(pid))


def hit(pid: int, kind: Kind) -> None:
    """Kill the process, or freeze it for good."""
    _send(pid, signal.SIGSTOP if kind in (Kind.FREEZE_BROWSER, Kind.FREEZE_RENDERER) else signal.SIGKILL)


def has_ended(pid: int) -> bool:
    """Return whether a process has ended. One that its parent has not yet waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def _is_hit_by(kind: Kind, command: str) -> bool:
    if kind in (Kind.KILL_RENDERER, Kind.FREEZE_RENDERER):
        return "--type=renderer" in command
    if kind is Kind.KILL_JANITOR:
        return command.startswith("/bin/sh") and _PREFIX in command and "--user-data-dir=" not in command
    return "--user-data-dir=" in command and "--type=" not in command and not command.startswith("/bin/sh")


def _browsers_below(pid: int) -> Iterator[int]:
    for found in descendants(pid):
        command = command_of(found)
        if ("--type=" in command or _PREFIX in command) and not has_ended(found):
            yield found


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
