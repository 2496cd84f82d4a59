"""Worker processes on one frontier: started, killed, frozen, drained, with wrong clocks; each with a log of its own.

with Fleet(folder, resolve=web.resolve_overrides()) as fleet:
    one = fleet.start(frontier=server.address)
    one.kill()
    fleet.start(frontier=server.address)
    ...
    fleet.drain()

Every member asks under its own name (`User-Agent`), so that a web's log says who fetched what and when.
"""

import contextlib
import os
import signal
import struct
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.servers.program import python

HOOK = Path(__file__).with_name("hook")
ROOT = Path(__file__).parents[2]
_END_SECONDS = 60.0

QUICK = {
    "GOSSAMER_WORKER__HEARTBEAT": "2",
    "GOSSAMER_WORKER__CONCURRENCY": "16",
    "GOSSAMER_FETCH__RETRY_BASE": "0.05",
    "GOSSAMER_FETCH__TIMEOUT": "20",
}
"""Settings of workers whose deaths are to be noticed soon and whose web is ours."""


class Member:
    """One process of a fleet, with its children. Times are on the monotonic clock."""

    def __init__(self, name: str, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._skew_path = folder / f"{name}.skew"
        self._skew_path.write_bytes(struct.pack("d", 0.0))
        self.killed: float | None = None
        """When it got SIGKILL; None: it did not."""
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment, "FLEET_SKEW": str(self._skew_path)},
                start_new_session=True,
            )
        self.started = time.monotonic()

    @property
    def alive(self) -> bool:
        """It has not ended, killed or by itself. A frozen one is alive."""
        return self.process.poll() is None

    @property
    def log(self) -> str:
        """What it has said."""
        return self.log_path.read_text(errors="replace")

    def kill(self, *, alone: bool = False) -> None:
        """SIGKILL, its children first noticed and then killed too: as when its machine goes. `alone`: its children have
        to notice."""
        family = [self.process.pid] if alone else list(_family(self.process.pid))
        self.killed = time.monotonic()
        _signal(family, signal.SIGKILL)
        self.process.wait(_END_SECONDS)

    def freeze(self) -> None:
        """SIGSTOP, children included: it lives, and does nothing."""
        _signal(_family(self.process.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT. May be repeated."""
        _signal(_family(self.process.pid), signal.SIGCONT)

    def drain(self) -> None:
        """SIGTERM: it finishes what is under way and ends. May be repeated."""
        if self.alive:
            self.process.terminate()

    def skew(self, seconds: float) -> None:
        """From now on its wall clock is so far ahead (negative: behind)."""
        with self._skew_path.open("r+b") as file:
            file.write(struct.pack("d", seconds))

    def wait(self, timeout_seconds: float = _END_SECONDS) -> int:
        """Its exit code. Raises AssertionError with the end of its log if it does not end."""
        try:
            return self.process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; its log:\n{self.log[-3000:]}") from None


class Fleet:
    """Members by name, in one folder. A context manager: at its end whoever still lives is killed."""

    def __init__(
        self, folder: Path, *, resolve: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """`resolve`: HOST:ADDRESS overrides, which also permit these private addresses. `environment`: settings of all
        members, `GOSSAMER_…`, beside `QUICK`."""
        self.folder = folder
        self.members: list[Member] = []
        self._resolve = list(resolve)
        self._environment = {**os.environ, **QUICK, **(environment or {})}
        paths = [str(HOOK), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment |= {"FLEET_PARENT": str(os.getpid()), "PYTHONPATH": os.pathsep.join(paths)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                member.kill()

    @property
    def alive(self) -> list[Member]:
        """Those that have not ended, oldest first."""
        return [member for member in self.members if member.alive]

    def start(
        self,
        *,
        frontier: str,
        output: Path | str | None = None,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        name: str = "",
        skew: float = 0.0,
    ) -> Member:
        """A worker of the pool `shared`. `output`: where its pages go; None: `<name>.jsonl` in the folder, unless flags
        say it goes to a bus. Returns at once: it joins when it is up."""
        name = name or f"worker{len(self.members)}"
        if output is None and "--bus" not in flags:
            output = self.folder / f"{name}.jsonl"
        command = ["worker", "--quiet", "--frontier", frontier, "--data-dir", str(self.folder / f"{name}.data")]
        command += ["-o", str(output)] if output is not None else []
        command += [part for override in self._resolve for part in ("--resolve", override)]
        return self.run(name, [*command, *flags], environment=environment, skew=skew)

    def run(
        self, name: str, arguments: Sequence[str], *, environment: Mapping[str, str] | None = None, skew: float = 0.0
    ) -> Member:
        """Any command of the program as a member, e.g. `serve`."""
        return self.launch(name, [python(), "-m", "gossamer", *arguments], environment=environment, skew=skew)

    def launch(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str] | None = None, skew: float = 0.0
    ) -> Member:
        """Any command line as a member."""
        settings = {"GOSSAMER_FETCH__USER_AGENT": name, **self._environment, **(environment or {})}
        member = Member(name, command, folder=self.folder, environment=settings)
        if skew:
            member.skew(skew)
        self.members.append(member)
        return member

    def drain(self, timeout_seconds: float = _END_SECONDS) -> None:
        """SIGTERM to all that live, and wait for their ends."""
        living = self.alive
        for member in living:
            member.thaw()
            member.drain()
        for member in living:
            member.wait(timeout_seconds)


def _family(pid: int) -> Iterator[int]:
    """The process and all below it, as they are now."""
    yield pid
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from _family(int(child))


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in list(pids):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
