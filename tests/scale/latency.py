"""What more processes bring on hosts that take their time: nearly that many times as much."""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.journal import Record
from gossamer_fakeweb import max_concurrency
from gossamer_fakeweb.log import is_page
from tests.servers.crawling import command
from tests.servers.valkey import standalone, wait_until

TIMES = 7.5
"""What eight processes must be worth."""
_STOP_SECONDS = 90.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Of one crawl, over a stretch in the middle of it."""

    processes: int
    rate: float
    """Pages a second."""
    in_flight: int
    """The most requests that the web was answering at one moment."""
    most: float
    """Pages a second that could be had: every slot always waiting for its host."""
    idle: float
    """The share of this machine's CPU that nobody used meanwhile. Little: the machine was the limit."""


def pace(
    processes: int,
    *,
    concurrency: int = 64,
    latency_ms: float = 500.0,
    warm_up_seconds: float = 10.0,
    seconds: float = 20.0,
    hosts: int = 64,
) -> Pace:
    """Crawl with so many processes for a while."""
    enough = int(processes * concurrency * 1000 / latency_ms * (warm_up_seconds + seconds) * 1.5 / hosts)
    spec = WebSpec(hosts=hosts, pages=max(100, enough), page_bytes=1000, out_degree=10, latency_ms=latency_ms)
    with tempfile.TemporaryDirectory(prefix="latency-") as name, FakeWeb.start(spec) as web, standalone() as server:
        folder = Path(name)
        arguments = ["crawl", *web.seeds(), "--frontier", server.address, "-o", str(folder / "pages.jsonl"), "--quiet"]
        arguments += ["--processes", str(processes), "--concurrency", str(concurrency), "--resolve", "*.test:127.0.0.1"]
        arguments += ["--rate", "100000/1", "--domain-concurrency", "10000", "--ignore-robots"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command(*arguments), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=dict(os.environ)
            )
            try:
                wait_until(lambda: web.stats().requests > processes * concurrency, "the crawl to be under way")
                time.sleep(warm_up_seconds)
                psutil.cpu_percent()
                began = time.monotonic()
                time.sleep(seconds)
                ended, idle = time.monotonic(), 1 - psutil.cpu_percent() / 100
                process.terminate()
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()
                process.wait()
        assert process.returncode in (0, 130), (folder / "log").read_text()
        pages = [record for record in web.log() if is_page(record)]
    window = [record for record in pages if began <= record.started < ended]
    return Pace(
        processes,
        rate=len(window) / (ended - began),
        in_flight=_in_flight(pages),
        most=processes * concurrency * 1000 / latency_ms,
        idle=idle,
    )


def _in_flight(records: list[Record]) -> int:
    return max_concurrency(records, "test")
