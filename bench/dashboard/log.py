"""Follows a fast log in a real Chromium: does the page stay responsive, how far behind is it, what does it hold?"""

import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from bench.platform_files import ScrapydServer
from bench.statistics import quantile
from tests.servers.browser import Browser, browser

_LINE = (
    "2026-01-01 00:00:00 [shop] DEBUG: Crawled (200) <GET https://shop.example/page/> (referer: None) line {:012d}\n"
)
_STEPS_A_SECOND = 20
_WATCH = """
window.gaps = [];
let last = performance.now();
const tick = (now) => { window.gaps.push(now - last); last = now; requestAnimationFrame(tick); };
requestAnimationFrame(tick); 0
"""
_SHOWN = """
Number([...document.getElementById('log').textContent.slice(-1000).matchAll(/line (\\d+)\\n/g)].at(-1)?.[1] ?? -1)
"""
"""Number of the last whole line that the page shows. -1: it shows none."""
_LONGEST_FRAME_MS = 200.0
"""Time between two frames above which people notice that a page stands still."""
_MOST_BEHIND_SECONDS = 5.0


class _Writer:
    """A job that writes lines at a rate."""

    def __init__(self, server: ScrapydServer, rate: int) -> None:
        self._server = server
        self._rate = rate
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self.written = 0

    def __enter__(self) -> "_Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def _write(self) -> None:
        began = time.monotonic()
        while not self._stopping.wait(1 / _STEPS_A_SECOND):
            due = int((time.monotonic() - began) * self._rate)
            self._server.append("log", "".join(map(_LINE.format, range(self.written, due))).encode())
            self.written = due


def measure(*, seconds: float, rate: int) -> bool:
    """Print the figures; return whether they are good."""
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder:
        place = Path(folder, "server")
        place.mkdir()
        server = ScrapydServer(place)
        with server.running(), _Writer(server, rate) as writer, browser(Path(folder, "profile")) as chromium:
            return _follow(server, writer, chromium, seconds=seconds, rate=rate)


def _follow(server: ScrapydServer, writer: _Writer, chromium: Browser, *, seconds: float, rate: int) -> bool:
    chromium.call("Performance.enable")
    process = psutil.Process(server.process.pid)
    while writer.written < rate:
        time.sleep(0.1)
    chromium.open(f"http://127.0.0.1:{server.port}/ui/job/log?id=1")
    chromium.evaluate(_WATCH)
    used = sum(process.cpu_times()[:2])
    memory, heap, behind = [server.memory()], [_heap(chromium)], []
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        time.sleep(0.5)
        written = writer.written
        shown = chromium.evaluate(_SHOWN)
        if shown >= 0:
            behind.append(max(0, written - shown) / rate)
        memory.append(server.memory())
        heap.append(_heap(chromium))
    wall = time.monotonic() - began
    cpu = (sum(process.cpu_times()[:2]) - used) / wall
    gaps = chromium.evaluate("window.gaps")
    characters = chromium.evaluate("document.getElementById('log').textContent.length")
    skipped = chromium.evaluate(
        "(log => log.textContent.includes(log.dataset.skipped))(document.getElementById('log'))"
    )
    longest, lag = max(gaps), max(behind)
    size = rate * len(_LINE.format(0)) / 1e6
    print(f"a log of {rate:,} lines a second ({size:.1f} MB/s), followed for {wall:.0f} s")
    print(f"  frames apart: {statistics.median(gaps):.0f} ms, p99 {quantile(gaps, 0.99):.0f}, at most {longest:.0f}")
    print(f"  the page is {statistics.median(behind):.2f} s behind, {lag:.2f} s at most; lines left out: {skipped}")
    print(
        f"  it holds {characters / 1e6:.2f} million characters; heap of the tab {min(heap):.1f} to {max(heap):.1f} MB"
    )
    print(f"  the server uses {cpu:.0%} of a core; its memory was {memory[0]:.0f} MB, and {max(memory):.0f} at most")
    return bool(longest <= _LONGEST_FRAME_MS and lag <= _MOST_BEHIND_SECONDS)


def _heap(chromium: Browser) -> float:
    """Return the heap of the tab in MB."""
    metrics = chromium.call("Performance.getMetrics")["metrics"]
    return next(float(each["value"]) for each in metrics if each["name"] == "JSHeapUsedSize") / 1e6
