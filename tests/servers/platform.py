"""`gossamer manager` and `gossamer node` as processes of their own, each in a folder of its own."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.servers.nursery import Reared, serve_in
from tests.servers.open_python import OpenPython
from tests.servers.scrapyd import WAIT_SECONDS, until
from tests.servers.valkey import free_ports

_END_SECONDS = 60.0


class PlatformProcess:
    """One command, which may be killed and started again."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        *,
        quick: bool = False,
        output: str = "output",
        python: OpenPython | None = None,
    ) -> None:
        """`output`: file below `folder` for what it says. `quick`: jobs are not run by Scrapy, but by
        tests/jobs/stand_in.py, which notes when they run. `python`: interpreter, if not that of the tests."""
        self.folder = folder
        self._arguments, self._quick, self._python = arguments, quick, python
        self.process: Reared | subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._log = folder / output

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None or self.process.poll() is not None:
            self.launch()

    def launch(self) -> None:
        """Start it; return at once."""
        environment = {**os.environ}
        if self._python is not None:
            command = [self._python.path, "-m", "gossamer", *self._arguments]
            with self._log.open("ab") as log:
                self.process = subprocess.Popen(
                    command,
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment | self._python.environment,
                    start_new_session=True,
                )
        elif self._quick:
            self.process = Reared(
                "tests.jobs.stand_in",
                self._arguments,
                environment=environment,
                log=self._log,
                folder=self.folder,
                appends=True,
                libraries="servers",
            )
        else:
            self.process = serve_in(self.folder, self._arguments, environment=environment, log=self._log)

    def said(self) -> str:
        """What it has written so far."""
        return self._log.read_text(errors="replace")

    def signal(self, number: int) -> None:
        """Send a signal to this process alone."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, to it alone."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(_END_SECONDS)

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        assert self.process is not None
        return self.process.wait(_END_SECONDS)


def waits_for_job(process: Path) -> bool:
    """Whether a process, named by its folder in /proc, is a shim that has no attempt yet."""
    with contextlib.suppress(OSError):  # it has ended
        return b"--wait" in (process / "cmdline").read_bytes() and os.readlink(process / "fd/0").startswith("pipe:")
    return False


class RunningManager(PlatformProcess):
    """A manager."""

    def __init__(self, folder: Path, *options: str, limit_seconds: float, output: str = "output") -> None:
        [self.port] = free_ports(1)
        arguments = ("manager", "--port", str(self.port), "--node-limit", str(limit_seconds), "--log-level", "info")
        super().__init__(folder, (*arguments, *options), output=output)
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=WAIT_SECONDS)

    def start(self) -> None:
        """Start it, unless it runs. Return when it serves."""
        super().start()
        until(self._serves, what=self.said)

    def _serves(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.said()
        with contextlib.suppress(httpx.TransportError):
            return self.client.get("/v1/nodes").status_code in (200, 401)
        return False

    def deploy(self, content: bytes, *, project: str = "shop") -> None:
        """Deploy an egg."""
        fields = {"project": project, "version": "1"}
        answer = self.client.post("/addversion.json", data=fields, files={"egg": ("project.egg", content)})
        assert answer.json()["status"] == "ok", answer.text

    def create(self, spider: str, *, project: str = "shop", **fields: Any) -> int:
        """Create a job; its number."""
        answer = self.client.post("/v1/jobs", json={"project": project, "spider": spider, **fields})
        assert answer.status_code == 201, answer.text
        return int(answer.json()["id"])

    def job(self, number: int) -> Any:
        """A job as it is now."""
        return self.client.get(f"/v1/jobs/{number}").json()

    def ended(self, number: int) -> Any:
        """A job once it has ended."""
        return self.when(number, "finished", "failed", "cancelled")

    def when(self, number: int, *states: str) -> Any:
        """A job once it is in one of these states."""
        until(lambda: self.job(number)["state"] in states, what=lambda: f"{self.job(number)}\n{self.said()}")
        return self.job(number)

    def node(self, name: str) -> Any:
        """A node as it is now. None: there is none of this name."""
        answer = self.client.get(f"/v1/nodes/{name}")
        return answer.json() if answer.status_code == 200 else None

    def when_node(self, name: str, state: str) -> Any:
        """A node once it is in this state."""
        until(lambda: (self.node(name) or {}).get("state") == state, what=lambda: f"{self.node(name)}\n{self.said()}")
        return self.node(name)


class RunningNode(PlatformProcess):
    """A node's agent, with its shims and jobs: a machine."""

    def __init__(
        self, folder: Path, managers: Sequence[str], *options: str, name: str, slots: int = 4, **more: Any
    ) -> None:
        """`more`: as for PlatformProcess."""
        addresses = [part for manager in managers for part in ("--manager", manager)]
        if "--project-users" not in options:  # as if the tests were not run by root, whose Python others cannot use
            options = ("--project-users", "off", *options)
        arguments = ("node", *addresses, "--name", name, "--slots", str(slots), "--log-level", "info", *options)
        super().__init__(folder, arguments, **more)
        self.name = name

    def processes(self) -> list[int]:
        """The pids of its shims and of all processes of its attempts."""
        mark = str(self.folder).encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                command, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
                is_shim = b"shim.py" in command and mark in command and not waits_for_job(entry)
                if is_shim or b"GOSSAMER_ATTEMPT=" + mark in environment:
                    found.append(int(entry.name))
        return found

    def signal_all(self, number: int) -> None:
        """Send a signal to the agent, the shims and the jobs, also to those that start in the meantime."""
        if self.process is not None and self.process.poll() is None:
            self.signal(number)
        reached: set[int] = set()
        while new := set(self.processes()) - reached:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            reached |= new

    def crash(self) -> None:
        """SIGKILL, to the whole machine."""
        self.signal_all(signal.SIGKILL)
        self.kill()


@contextlib.contextmanager
def running(*programs: PlatformProcess) -> Iterator[None]:
    """Start programs, and kill them with all their jobs at the end."""
    try:
        for program in programs:
            program.start()
        yield
    finally:
        for program in reversed(programs):
            if isinstance(program, RunningNode):
                program.crash()
            program.kill()
            if isinstance(program, RunningManager):
                program.client.close()
