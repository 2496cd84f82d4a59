"""Processes of this machine, as /proc shows them: which exist, which is which, and killing those of one attempt.

Linux only. A pid alone names no process, because the system uses numbers again: start time and boot belong to it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gossamer.platform.node.shim import boot_id, start_time

_ROUND_SECONDS: Final = 0.05
"""Pause between two rounds of killing. May be changed."""


def is_alive(pid: int, start: str, boot: str) -> bool:
    """Return whether this process of this boot still exists and is not a zombie."""
    if boot != boot_id() or not start or start_time(pid) != start:
        return False
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def kill_strays(mark: str, group: int | None) -> int:
    """Kill all processes that have `mark` in their environment or belong to the process group, until none is left.

    Return the number of those killed. Used when the shim that would have killed them is gone.
    """
    killed: set[int] = set()
    while found := set(_strays(mark.encode(), group)):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        killed |= found
        time.sleep(_ROUND_SECONDS)
    return len(killed)


def _strays(mark: bytes, group: int | None) -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if fields[0] in "ZX":
                continue
            if (group and int(fields[2]) == group) or mark in Path(f"/proc/{entry}/environ").read_bytes():
                yield int(entry)
