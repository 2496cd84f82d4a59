"""Running a command and counting what it used: all its processes together."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.errors import BenchFailed

_POLL_SECONDS = 0.02
_SAMPLE_SECONDS = 0.5
_KILL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Usage:
    """Time and memory that a command, and the processes it waited for, have used."""

    wall_seconds: float
    cpu_seconds: float
    """User and system time."""
    peak_bytes: int
    """Resident memory; of several processes together, sampled twice a second. On Linux, shared memory counts once."""


def run(command: Sequence[str], *, environment: Mapping[str, str], log: Path, timeout_seconds: float) -> Usage:
    """Run it to its end. Raises BenchFailed with the end of what it said if it fails or takes too long.

    The command gets a session of its own, and nothing of it outlives this call, an exception (Ctrl-C) included.
    """
    began = time.monotonic()
    with log.open("wb") as said:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    sampled = 0
    next_sample = began + _SAMPLE_SECONDS
    try:
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            now = time.monotonic()
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                break
            if now - began > timeout_seconds:
                raise BenchFailed(f"took longer than {timeout_seconds:g} s: {_end_of(log)}")
            if now >= next_sample:
                sampled = max(sampled, _resident_bytes(process.pid))
                next_sample = now + _SAMPLE_SECONDS
            time.sleep(_POLL_SECONDS)
    finally:
        _end_session(process)
    if process.returncode:
        raise BenchFailed(f"exit {process.returncode}: {_end_of(log)}")
    unit = 1 if os.uname().sysname == "Darwin" else 1024  # getrusage(2)
    return Usage(now - began, used.ru_utime + used.ru_stime, max(sampled, used.ru_maxrss * unit))


def cpu_seconds(pid: int) -> float:
    """User and system time that a running server has used so far, with its children, ended ones included."""
    server = psutil.Process(pid)
    times = [process.cpu_times() for process in (server, *server.children(recursive=True))]
    return float(sum(t.user + t.system + t.children_user + t.children_system for t in times))


def _resident_bytes(pid: int) -> int:
    total = 0
    try:
        family = [psutil.Process(pid)]
        family += family[0].children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    for process in family:
        try:
            memory = process.memory_full_info() if psutil.LINUX else process.memory_info()
            total += getattr(memory, "pss", memory.rss)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def _end_session(process: "subprocess.Popen[bytes]") -> None:
    """Whatever is left of it, the command's children too."""
    if process.returncode is None:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        process.wait()


def _end_of(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return " / ".join(lines[-3:]) or "it said nothing"
