"""Runs first in every process of a fleet: it dies with the harness, and its wall clock may be wrong.

Not a package: its folder is put on PYTHONPATH. `FLEET_PARENT` is the harness's process id; `FLEET_SKEW` names a file
of eight bytes (a double, native order), the seconds that this process's wall clock is ahead, which may change any time.
"""

import contextlib
import ctypes
import mmap
import os
import signal
import struct
import time

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG, prctl(2)


def _die_with(parent: str) -> None:
    if parent == str(os.getppid()):  # children of this process end as the program says
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, int(signal.SIGKILL))


def _skew(path: str) -> None:
    with open(path, "rb") as file:
        seconds = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    right, right_ns, unpack = time.time, time.time_ns, struct.Struct("d").unpack_from
    time.time = lambda: right() + unpack(seconds)[0]
    time.time_ns = lambda: right_ns() + int(unpack(seconds)[0] * 1e9)


if "FLEET_PARENT" in os.environ:
    _die_with(os.environ["FLEET_PARENT"])
if "FLEET_SKEW" in os.environ:
    _skew(os.environ["FLEET_SKEW"])
