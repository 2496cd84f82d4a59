"""A command line whose process ends when the one that started it ends, even by SIGKILL."""

import os
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
"""prctl(2); Linux only."""

# The signal is kept across exec, so the process id, the session and the open files are those of the program itself.
# A parent that died before the call would never be noticed, hence the look at who it is afterwards.
_WRAPPER = """
import os, signal, sys
try:
    import ctypes
    ctypes.CDLL(None).prctl({option}, int(signal.SIGTERM), 0, 0, 0)
except (ImportError, OSError, AttributeError):
    pass
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def bound_to_us(command: Sequence[str]) -> list[str]:
    """The command with that wish before it; `command[0]` is a path. Where the system has no such wish: as it is.

    The signal is SIGTERM. The kernel sends it when the thread that started the process ends, so start it in one that
    lives as long as the process is needed.
    """
    if sys.platform != "linux" or not sys.executable:
        return list(command)
    wrapper = _WRAPPER.format(option=_PR_SET_PDEATHSIG)
    return [sys.executable, "-I", "-S", "-c", wrapper, str(os.getpid()), *command]
