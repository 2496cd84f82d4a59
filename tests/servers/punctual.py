"""Who holds others to their times must not wait behind them for the processor."""

import contextlib
import os

_PRIORITY = 10


def make_punctual(pid: int) -> None:
    """Let the process (its main thread) run whenever it has something to do. Where this system does not allow it, or
    knows no such thing, nothing happens, and what it notes may be late on a busy machine."""
    if hasattr(os, "sched_setscheduler"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(pid, os.SCHED_RR, os.sched_param(_PRIORITY))
