"""Folder of one attempt on a node: starts its shim, stops it, and reads how it ended.

The files are the truth, also after the node was killed; `shim.py` describes them. Fixed: the folder with all files is
complete before the shim is started, so an attempt without a folder has never run; and of the shim and a node that
revokes the attempt only one can create `shim.json`.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec.structs import asdict

from gossamer_platform.link import AttemptLimits
from gossamer_platform.node import runner, shim
from gossamer_platform.node.processes import CHILDREN, is_alive, kill_strays
from gossamer_platform.node.users import ProjectUser
from gossamer_platform.outcome import AttemptEnd, bounded_counters

MARK: Final = "GOSSAMER_ATTEMPT"
"""Environment variable that marks the processes of an attempt. Fixed: strays of an earlier release are found by it."""
OWN: Final = "own"
"""Folder in an attempt's folder that belongs to the process, if its user is not the node's. Fixed: `runner.py` knows
it."""
_MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
"""Longest file that is read of those that the process leaves."""
_MAX_REASON: Final = 1000
"""Longest finish_reason and fault that are taken from the process."""
_OUTPUT_TAIL: Final = 16 * 1024
"""Bytes of an attempt's own output that a message about a fault may have."""


_REVOKED: Final = {"pid": 0, "start": "", "boot": ""}
"""Owner of an attempt that a node has revoked."""
_UNKNOWN_OWNER: Final = {"pid": 0, "start": "", "boot": "unknown"}
"""Owner of an attempt whose `shim.json` cannot be read. A power cut leaves such a file, and no shim outlives it."""


class Command(NamedTuple):
    """Everything that an attempt needs to run."""

    mode: str
    """Word for the runner: `crawl` or `list`."""
    job: Mapping[str, Any]
    """Content of `job.json`; see `runner.py`."""
    environment: Mapping[str, str]
    folder: str
    """Current folder of the process."""
    output: str = ""
    """File for what the process prints. Empty: a file in the attempt's folder."""
    limits: AttemptLimits = AttemptLimits()
    program: tuple[str, ...] = ()
    """Command line to run instead of the runner."""
    python: str = ""
    """Interpreter for the runner. Empty: that of the node."""
    valid_until: str = ""
    """File whose time of change is when the shim kills the attempt (CLOCK_BOOTTIME). Empty: there is no such time."""
    input: Path | None = None
    """File that is moved into the attempt's folder. None: there is none."""
    user: ProjectUser | None = None
    """User of the process. None: that of the node."""


def _give(folder: Path, user: ProjectUser, items: str) -> None:
    """Give a user what its process needs in a new attempt's folder, and its file for items.

    The folder itself stays the node's. So nothing that the process does there, such as a link in the place of a file
    of the shim's, has an effect on the node.
    """
    user.own(folder / "job.json", 0o400)
    (folder / "stops").chmod(0o640)
    os.chown(folder / "stops", -1, user.uid)
    own = folder / OWN
    (own / "tmp").mkdir(parents=True)
    # From the inside out: in a folder that it owns, another process of the user could exchange what is in it.
    user.own(own / "tmp", 0o700)
    user.own(own, 0o700)
    user.let_in(folder)
    if items:
        descriptor = os.open(items, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o640)
        os.fchown(descriptor, user.uid, user.uid)
        os.fchmod(descriptor, 0o640)
        os.close(descriptor)


class AttemptState(Enum):
    """State of an attempt by its files."""

    UNCLAIMED = auto()
    """The shim may or may not be about to start."""
    RUNNING = auto()
    ENDED = auto()
    LOST = auto()
    """The shim is gone and has left no end: it was killed, or the machine was restarted."""


class JobAttempt:
    """One attempt, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        """The shim, if this process started it."""

    @property
    def mark(self) -> str:
        """Environment entry of the attempt's processes."""
        return f"{MARK}={self.folder}"

    def prepare(self, command: Command) -> None:
        """Create the folder with all that the shim needs."""
        new = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700, parents=True)
        attempt = {
            "command": command.program
            or (command.python or sys.executable, runner.__file__, command.mode, str(self.folder)),
            "folder": command.folder,
            "output": command.output or str(self.folder / "output"),
            "user": 0 if command.user is None else command.user.uid,
            **asdict(command.limits),
            "items": command.job.get("items", ""),
            "valid_until": command.valid_until,
        }
        shim.write_json(str(new), "job.json", dict(command.job))
        (new / "stops").write_text(_stop_line(0, only_signal=True))  # signal 0 has no effect
        environment = {**command.environment, MARK: str(self.folder)}
        if command.user is not None:
            environment["TMPDIR"] = str(self.folder / OWN / "tmp")
            _give(new, command.user, command.job.get("items", ""))
        shim.write_json(str(new), "environment.json", environment)
        shim.write_json(str(new), "attempt.json", attempt)
        if command.input is not None:
            if command.user is not None:
                command.user.own(command.input, 0o400)
            os.rename(command.input, new / command.input.name)
        os.rename(new, self.folder)

    def start(self) -> int:
        """Start the shim. Return a file descriptor that ends when the job's process runs, or the shim has ended."""
        self.process, started = CHILDREN.start_shim(str(self.folder))
        return started

    def revoke(self) -> bool:
        """Keep the shim from ever starting the job. Return False if it has started."""
        return shim.claim(str(self.folder), _REVOKED) or self._owner() == _REVOKED

    def stop(self, number: int, *, grace_seconds: float, only_signal: bool = False) -> None:
        """Ask the shim to end the job with this signal, and to kill its tree after the grace. `only_signal`: just send
        the signal."""
        with (self.folder / "stops").open("a") as file:
            file.write(_stop_line(number, grace_seconds, only_signal=only_signal))
        self._wake_shim()

    def stops(self) -> int:
        """Return how many stops the shim was asked for."""
        try:
            return len([line for line in self._read_text("stops").splitlines() if '"only_signal": false' in line])
        except FileNotFoundError:
            return 0

    def _owner(self) -> Mapping[str, Any] | None:
        """Return the process that owns the attempt. None: none does yet."""
        try:
            owner: Mapping[str, Any] = json.loads(self._read_text("shim.json"))
        except FileNotFoundError:
            return None
        except ValueError:
            return _UNKNOWN_OWNER
        return owner

    def state(self) -> AttemptState:
        """Return the attempt's state."""
        owner = self._owner()
        if owner is None:
            return AttemptState.UNCLAIMED
        # In this order: a shim writes its end before it is gone.
        alive = is_alive(owner["pid"], owner["start"], owner["boot"])
        if self.read("exit.json") is not None:
            return AttemptState.ENDED
        return AttemptState.RUNNING if alive else AttemptState.LOST

    def open_shim(self) -> int | None:
        """Return a file descriptor of the shim's process, which becomes readable when the shim ends. None: it is
        gone."""
        owner = self._owner()
        if owner is None or not owner["pid"]:
            return None
        try:
            descriptor = os.pidfd_open(owner["pid"])
        except ProcessLookupError:
            return None
        # Looked at after the opening: now the descriptor cannot lead to another process.
        if is_alive(owner["pid"], owner["start"], owner["boot"]):
            return descriptor
        os.close(descriptor)
        return None

    async def wait(self) -> None:
        """Wait until the shim is gone."""
        if self.process is not None:  # not yet claimed, maybe; but this process is its parent
            descriptor: int | None = os.pidfd_open(self.process.pid)
        else:
            descriptor = self.open_shim()
        if descriptor is not None:
            try:
                await readable(descriptor)
            finally:
                os.close(descriptor)
        if self.process is not None:
            CHILDREN.reap(self.process)  # returns at once: the process has ended

    def _wake_shim(self) -> None:
        descriptor = self.open_shim()
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGUSR1)
            os.close(descriptor)

    def pid(self) -> int | None:
        """Return the pid of the job's process. None: it has not been started."""
        started = self.read("started.json")
        return None if started is None else int(started["pid"])

    def end(self) -> AttemptEnd:
        """Return how the attempt ended. Call this when the shim is gone; it kills what a killed shim has left."""
        found = self.read("exit.json")
        report = self.read_result("report.json")
        report = report if isinstance(report, dict) else {}
        reason, fault = report.get("finish_reason"), report.get("fault")
        finish_reason = reason[:_MAX_REASON] if isinstance(reason, str) else None
        self._remove_empty_items(report)
        if found is None:
            owner = self._owner()
            same_boot = owner is None or owner["boot"] == shim.boot_id()
            CHILDREN.kill_orphans()
            kill_strays(self.mark)
            CHILDREN.kill_orphans()
            return AttemptEnd(
                finish_reason=finish_reason,
                fault="shim_lost" if same_boot else "machine_restarted",
                stopped=self.stops() > 0,
                stats=self.stats(),
            )
        ago = shim.now() - found["at"] if found["boot"] == shim.boot_id() else 0.0
        return AttemptEnd(
            exit_code=found.get("exit_code"),
            signal=found.get("signal"),
            finish_reason=finish_reason,
            fault=found["fault"] or (fault[:_MAX_REASON] if isinstance(fault, str) else ""),
            ago_seconds=max(0.0, ago),
            stopped=found.get("stops", 0) > 0,
            stats=bounded_counters(report.get("stats")) or self.stats(),
        )

    def stats(self) -> dict[str, Any]:
        """Return Scrapy's counters as the process has last reported them. Empty: it has not."""
        return bounded_counters(self.read_result("progress.json"))

    def _remove_empty_items(self, report: Mapping[str, Any]) -> None:
        """Delete the items file that was made for the process's user, if the process has not opened it."""
        attempt = self.read("attempt.json")
        if attempt is not None and attempt["user"] and attempt["items"] and not report.get("has_items"):
            with contextlib.suppress(FileNotFoundError):
                if os.stat(attempt["items"]).st_size == 0:
                    os.unlink(attempt["items"])

    def output_tail(self, length: int = _OUTPUT_TAIL) -> str:
        """Return the end of what the attempt printed, if that is in its own folder."""
        try:
            with (self.folder / "output").open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - length))
                return file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""

    def read(self, name: str) -> Any:
        """Return the content of one of the JSON files. None: there is none, or a power cut has left it empty."""
        try:
            return json.loads(self._read_text(name))
        except (FileNotFoundError, ValueError):
            return None

    def read_result(self, name: str) -> Any:
        """Return the content of a JSON file that the process has left. None: there is none, or it is something else.

        The process may have made anything of this name: a link to a file of the node's, a pipe that never ends.
        """
        own = self.folder / OWN
        try:
            path = (own if own.is_dir() else self.folder) / name
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as file:
                is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
                content = file.read(_MAX_REPORT_BYTES + 1) if is_file else b""
            return json.loads(content) if len(content) <= _MAX_REPORT_BYTES else None
        except (OSError, ValueError, RecursionError):
            return None

    def remove(self) -> None:
        """Delete the folder. Its name goes at once, so that an interrupted deletion leaves no half attempt."""
        gone = self.folder.with_name(f".{self.folder.name}")
        shutil.rmtree(gone, ignore_errors=True)
        try:
            os.rename(self.folder, gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def _read_text(self, name: str) -> str:
        return (self.folder / name).read_text()


def _stop_line(number: int, grace_seconds: float = 0.0, *, only_signal: bool) -> str:
    return json.dumps({"signal": number, "grace": grace_seconds, "only_signal": only_signal}) + "\n"


async def readable(descriptor: int) -> None:
    """Wait until a file descriptor is readable or at its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
