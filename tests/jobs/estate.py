"""Managers, machines with a node each, and the database, as processes that can be killed, frozen and cut off.

A machine here is a folder with a node's agent, its shims and its jobs; they are found by the folder's name in their
command lines and environments. Fixed: a node is always started again in its own folder, because that is what a
restarted machine does.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.tcp_proxy import Link, Network
from tests.servers.platform import waits_for_job
from tests.servers.postgresql import PostgreSql
from tests.servers.valkey import free_ports

ROOT = Path(__file__).parents[2]
_START_SECONDS = 90.0
_END_SECONDS = 30.0


class Program:
    """One command of Gossamer, with its output in a file."""

    def __init__(self, folder: Path, name: str, arguments: Sequence[str], *, stand_in: bool) -> None:
        self.folder = folder
        self.name = name
        self._arguments = arguments
        self._module = "tests.jobs.stand_in" if stand_in else "gossamer"
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        """What it has written."""
        return self.folder.parent / f"{self.name}.log"

    def start(self) -> None:
        """Start it. The one before has ended."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self._module, *self._arguments],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Send a signal, to this process alone."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(_END_SECONDS)

    def stop(self) -> int:
        """SIGTERM, and wait; its exit code."""
        assert self.process is not None
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        return self.process.wait(_END_SECONDS)

    def has_ended(self) -> bool:
        """Whether it does not run."""
        return self.process is None or self.process.poll() is not None


class Machine(Program):
    """A node's agent with its shims and jobs, and its way to the managers."""

    def __init__(
        self, folder: Path, name: str, arguments: Sequence[str], *, links: Sequence[Link], stand_in: bool
    ) -> None:
        super().__init__(folder, name, arguments, stand_in=stand_in)
        self.links = links
        """One for each manager."""

    def jobs_processes(self) -> list[int]:
        """Return the pids of its shims and of all processes of its attempts."""
        mark = str(self.folder).encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self.process is not None and int(entry.name) == self.process.pid:
                    continue
                command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                is_shim = b"shim.py" in command and mark in command and not waits_for_job(entry)
                if is_shim or b"GOSSAMER_ATTEMPT=" + mark in environment:
                    found.append(int(entry.name))
        return found

    def shims(self) -> list[int]:
        """Return the pids of its shims."""
        found = []
        for pid in self.jobs_processes():
            with contextlib.suppress(OSError):
                if b"shim.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def signal_all(self, number: int) -> None:
        """Send a signal to the agent, the shims and the jobs, those that start meanwhile too."""
        self.signal(number)
        reached: set[int] = set()
        while new := set(self.jobs_processes()) - reached:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            reached |= new


class Estate:
    """All of a run. Created with `estate()`."""

    def __init__(
        self, database: PostgreSql, managers: list[Program], ports: list[int], machines: list[Machine]
    ) -> None:
        self.database = database
        self.managers = managers
        self.ports = ports
        self.machines = machines

    def call(self, method: str, path: str, *, seconds: float = 60.0, **options: Any) -> httpx.Response:
        """Ask the managers in turn until one answers with anything but an outage. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < deadline:
            port = self.ports[turn % len(self.ports)]
            turn += 1
            with contextlib.suppress(httpx.TransportError):
                answer = httpx.request(
                    method,
                    f"http://127.0.0.1:{port}{path}",
                    headers={**options.get("headers", {})},
                    timeout=10.0,
                    **{name: value for name, value in options.items() if name != "headers"},
                )
                if answer.status_code < 500:
                    return answer
            time.sleep(0.05)
        raise TimeoutError(f"no manager answered {method} {path} within {seconds:g} seconds")

    def signal_database(self, number: int) -> None:
        """Send a signal to all processes of the database's server."""
        process = self.database._process
        assert process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)

    def left_over(self) -> list[int]:
        """Return the pids of processes of attempts that still run."""
        return [pid for machine in self.machines for pid in machine.jobs_processes()]

    def outputs(self) -> Mapping[str, str]:
        """Return what each program has written, by name."""
        return {one.name: one.log.read_text(errors="replace") for one in (*self.managers, *self.machines)}


@contextlib.contextmanager
def estate(
    folder: Path, database: PostgreSql, *, nodes: int, slots: int, limit_seconds: float, stand_in: bool
) -> Iterator[Estate]:
    """Start two managers and the nodes; stop everything at the end of the block."""
    url = database.new_database()
    ports = free_ports(2)
    managers = [
        Program(
            folder / f"manager-{number}",
            f"manager-{number}",
            manager_arguments(url, port, folder, limit_seconds),
            stand_in=False,
        )
        for number, port in enumerate(ports)
    ]
    with contextlib.ExitStack() as closing:
        networks = [closing.enter_context(Network("127.0.0.1", port)) for port in ports]
        machines = []
        for number in range(nodes):
            links = [network.link() for network in networks]
            name = f"node-{number}"
            arguments = node_arguments([f"http://127.0.0.1:{link.port}" for link in links], name, slots)
            machines.append(Machine(folder / name, name, arguments, links=links, stand_in=stand_in))
        run = Estate(database, managers, ports, machines)
        closing.callback(_end, run)
        for program in (*managers, *machines):
            program.start()
        yield run


def _end(run: Estate) -> None:
    for machine in run.machines:
        machine.signal_all(signal.SIGKILL)
    for program in (*run.managers, *run.machines):
        program.kill()


def manager_arguments(url: str, port: int, folder: Path, limit_seconds: float) -> list[str]:
    """Return the command line of a manager."""
    options = ["--database", url, "--port", str(port), "--store", str(folder / "store")]
    return ["manager", *options, "--node-limit", str(limit_seconds)]


def node_arguments(managers: Sequence[str], name: str, slots: int) -> list[str]:
    """Return the command line of a node, which runs in its own folder."""
    named = [word for manager in managers for word in ("--manager", manager)]
    options = ["--name", name, "--slots", str(slots), "--folder", ".", "--project-users", "off"]
    return ["node", *named, *options]
