"""Times the reading of a million items and of a log of one gigabyte, on a manager and on `gossamer scrapyd`.

    python -m bench.platform_files [--items 1000000] [--log-mb 1024]

Both servers run as processes of their own, on SQLite and a folder. The manager gets its files as a node sends them.
While the log is sent, read and followed, another client asks for a job again and again: that is the API's latency.
Figures depend on the machine and on what else runs on it.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform import wire
from gossamer_platform.lifecycle import JobState
from gossamer_platform.state import jobs
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import jobs as job_table

_NODE = {wire.NODE_HEADER: "bench", wire.INCARNATION_HEADER: "bench"}
_LOG_LINE = b"2026-01-01 00:00:00 [shop] DEBUG: Crawled (200) <GET https://shop.example/page/%012d> (referer: None)\n"


def main() -> None:
    """Run the measurements and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--log-mb", type=int, default=1024)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder:
        for name, server in (("gossamer scrapyd", ScrapydServer), ("gossamer manager", _Manager)):
            place = Path(folder, name.replace(" ", "-"))
            place.mkdir()
            with server(place).running() as running:
                print(f"{name}:")
                running.fill_items(options.items)
                _time_items(running, options.items)
                _time_log(running, options.log_mb)


class _Server:
    """A server with one job that runs, number 1."""

    arguments: tuple[str, ...]
    database: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=120)

    @contextlib.contextmanager
    def running(self) -> Iterator["_Server"]:
        """Run the server with the job in its database."""
        (self.folder / self.database).parent.mkdir(parents=True, exist_ok=True)
        asyncio.run(self._add_job())
        command = [sys.executable, "-m", "gossamer", *self.arguments, *self.options()]
        with (self.folder / "output").open("wb") as output:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=output, stderr=output)
        try:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if self.client.get("/v1/jobs/1").status_code == 200:
                        break
                if self.process.poll() is not None:
                    raise RuntimeError((self.folder / "output").read_text())
                time.sleep(0.05)
            yield self
        finally:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
            self.client.close()

    def options(self) -> list[str]:
        """Options of the command."""
        raise NotImplementedError

    async def _add_job(self) -> None:
        database = StateDatabase(f"sqlite:///{self.folder / self.database}")
        await database.migrate()

        def add(connection: Any) -> None:
            number = jobs.add_job(connection, NewJob("shop", "bench", "one"))
            columns = {"state": JobState.RUNNING.value, "node": "bench", "attempt": 1, "has_files": True}
            connection.execute(update(job_table).values(**columns, started_at=DatabaseNow(), pid=os.getpid()))
            assert number == 1

        await database.write(add)
        await database.close()

    def memory(self) -> float:
        """Return the memory of the process in MB."""
        [line] = [line for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines() if "VmRSS" in line]
        return int(line.split()[1]) / 1024

    def fill_items(self, count: int) -> None:
        """Write the items."""
        for start in range(0, count, 20_000):
            numbers = range(start, min(count, start + 20_000))
            self.append("items", b"".join(b'{"n": %d, "title": "%s"}\n' % (n, b"x" * (50 + n % 300)) for n in numbers))

    def append(self, kind: str, content: bytes) -> None:
        """Add bytes to a file of the job."""
        raise NotImplementedError


class ScrapydServer(_Server):
    """`gossamer scrapyd`."""

    arguments = ("scrapyd",)
    database = "dbs/gossamer/state.db"

    def options(self) -> list[str]:
        (self.folder / "scrapyd.conf").write_text(f"[scrapyd]\nhttp_port = {self.port}\nitems_dir = items\n")
        return []

    def append(self, kind: str, content: bytes) -> None:
        root, suffix = ("logs", "log") if kind == "log" else ("items", "jl")
        path = self.folder / root / "shop/bench" / f"one.{suffix}"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(content)


class _Manager(_Server):
    arguments = ("manager",)
    database = "gossamer-store/state.db"
    end = 0
    kind = ""

    def options(self) -> list[str]:
        return ["--port", str(self.port)]

    def append(self, kind: str, content: bytes) -> None:
        if kind != self.kind:
            self.kind, self.end = kind, 0
        for start in range(0, len(content), wire.MAX_PART_BYTES):
            part = content[start : start + wire.MAX_PART_BYTES]
            url = f"{wire.PREFIX}/attempts/1/1/{kind}"
            answer = self.client.put(url, params={"offset": self.end}, content=part, headers=_NODE)
            answer.raise_for_status()
            self.end = answer.json()["end"]


def _time_items(server: _Server, count: int) -> None:
    def page(start: int) -> Callable[[], Any]:
        return lambda: server.client.get("/v1/jobs/1/items", params={"start": start}).json()["items"][0]["n"]

    for name, start in (("first", 0), ("middle", count // 2), ("last", count - 100)):
        first, *times = [_timed(page(start), start) for _ in range(21)]
        print(f"  items, {name} page: {_ms(statistics.median(times))} (median; the first time {_ms(first)})")
    before = server.memory()
    for form in ("jsonl", "csv", "json", "xml"):
        began, length, most = time.monotonic(), 0, 0.0
        with server.client.stream("GET", f"/v1/jobs/1/items.{form}") as response:
            for number, part in enumerate(response.iter_raw()):
                length += len(part)
                if number % 100 == 0:
                    most = max(most, server.memory())
        seconds = time.monotonic() - began
        print(f"  export as {form}: {length / 1e6:.0f} MB in {seconds:.1f} s; memory {before:.0f} -> {most:.0f} MB")


def _time_log(server: _Server, megabytes: int) -> None:
    """Send and read a log, and time another client meanwhile."""
    lines = b"".join(_LOG_LINE % number for number in range(40_000))
    done = threading.Event()
    latencies: list[float] = []

    def ask() -> None:
        with httpx.Client(base_url=server.client.base_url, timeout=120) as client:
            while not done.is_set():
                latencies.append(_timed(lambda: client.get("/v1/jobs/1").status_code, 200))
                time.sleep(0.005)

    def follow() -> None:
        with (
            httpx.Client(base_url=server.client.base_url, timeout=120) as client,
            client.stream("GET", "/v1/jobs/1/events") as response,
        ):
            for _ in response.iter_raw():
                if done.is_set():
                    return

    quiet_ends = time.monotonic() + 2
    asking = threading.Thread(target=ask)
    asking.start()
    while time.monotonic() < quiet_ends:
        time.sleep(0.05)
    quiet, latencies[:] = latencies[:], []
    following = threading.Thread(target=follow, daemon=True)
    following.start()
    began = time.monotonic()
    for _ in range(megabytes * 1_048_576 // len(lines)):
        server.append("log", lines)
        server.client.get("/v1/jobs/1/log", params={"tail": 100_000})
    sent = time.monotonic() - began
    while_sent = latencies[:]
    latencies[:] = []
    began, length, most = time.monotonic(), 0, 0.0
    with server.client.stream("GET", "/v1/jobs/1/log") as response:
        for number, part in enumerate(response.iter_raw()):
            length += len(part)
            if number % 100 == 0:
                most = max(most, server.memory())
    read = time.monotonic() - began
    done.set()
    asking.join()
    following.join(5)
    print(f"  API alone: {_percentiles(quiet)}")
    print(
        f"  API while {megabytes} MB of log are written, tailed and followed ({sent:.0f} s): {_percentiles(while_sent)}"
    )
    print(f"  API while {length / 1e6:.0f} MB of log are read ({read:.0f} s, followed): {_percentiles(latencies)}")
    print(f"  memory: {most:.0f} MB")


def _timed(call: Callable[[], Any], expected: Any) -> float:
    began = time.perf_counter()
    found = call()
    seconds = time.perf_counter() - began
    assert found == expected, (found, expected)
    return seconds


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _percentiles(times: list[float]) -> str:
    in_order = sorted(times)
    p99 = in_order[min(len(in_order) - 1, int(len(in_order) * 0.99))]
    return f"median {_ms(statistics.median(times))}, p99 {_ms(p99)}, of {len(times)} requests"


def _free_port() -> int:
    import socket

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    main()
