"""A process above a test run that kills what the run leaves behind, however the run ends.

The run (pytest or a program of tests/command.py, with its servers) is a grandchild of the process that was started:

    the process that was started    waits, and has the run's exit code
      the reaper                    adopts every process of the run whose parent has ended
        the run

The reaper kills all its descendants once the run has ended, or the process that was started. So a run that is
terminated by any signal leaves no process behind, also none that has a session and an environment of its own.
"""

import ctypes
import os
import signal
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # numbers of Linux's prctl(2)
_SI_KERNEL = 0x80
"""Origin of a signal: the terminal's Ctrl-C, which each process of the run gets."""
_WAITED = {signal.SIGCHLD, signal.SIGINT}


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Put a reaper above the run. The processes of pytest-xdist are below it."""
    if sys.platform == "linux" and not hasattr(config, "workerinput"):
        go_on_below_reaper()


def go_on_below_reaper() -> None:
    """Return in a new process, below a reaper. This one waits for it and exits with its code."""
    sys.stdout.flush()
    sys.stderr.flush()
    starter = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    if reaper := os.fork():
        _exit_as(_wait_for(reaper))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != starter:  # it has ended before it could be followed
        os._exit(1)
    if run := os.fork():
        os.setsid()  # signals to all processes of the run's group and terminal are for the others
        status = _wait_for(run)
        _kill_descendants(report=status is not None)
        _exit_as(status)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {*_WAITED, signal.SIGTERM})


def _wait_for(child: int) -> int | None:
    """Return the status of a child once it has ended. None: SIGTERM came first. Signals for the run are passed on."""
    while True:
        received = signal.sigwaitinfo({*_WAITED, signal.SIGTERM} & signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        if received.si_signo == signal.SIGTERM:
            return None
        if received.si_signo == signal.SIGINT and received.si_code != _SI_KERNEL:
            os.kill(child, signal.SIGINT)
        while (ended := _ended_child()) is not None:
            if ended[0] == child:
                return ended[1]


def _ended_child() -> tuple[int, int] | None:
    """Return the process id and the status of a child that has ended. None: there is none."""
    with suppress(ChildProcessError):
        pid, status = os.waitpid(-1, os.WNOHANG)
        return (pid, status) if pid else None
    return None


def _exit_as(status: int | None) -> NoReturn:
    """Exit with the code of a process that had this status, as a shell would."""
    code = 1 if status is None else os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def _kill_descendants(*, report: bool) -> None:
    """Kill all descendants, and return when none is left. `report`: print their commands."""
    reported: set[int] = set()
    with suppress(ChildProcessError):  # no child is left
        while True:
            for pid in descendants(os.getpid()):
                if report and pid not in reported and (command := command_of(pid)):
                    print(f"The tests left this process behind, which is killed now: {pid} {command}", file=sys.stderr)
                reported.add(pid)
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def descendants(pid: int) -> Iterator[int]:
    """Yield the process ids of children, their children, and so on."""
    children = defaultdict(list)
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parent = entry.read_text(errors="replace").rpartition(")")[2].split()[1]
            children[int(parent)].append(int(entry.parent.name))
    found = children[pid]
    for child in found:  # grows meanwhile
        yield child
        found += children[child]


def command_of(pid: int) -> str:
    """Return the command line of a process. Empty: it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def _prctl(operation: int, value: int) -> None:
    ctypes.CDLL(None).prctl(operation, value, 0, 0, 0)
