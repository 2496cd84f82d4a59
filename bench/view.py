"""`python -m bench.view`: what the performance view costs a Scrapy process and a worker, as a share of their CPU time.

Both run at full speed, and count the CPU time of all that belongs to the view: the recorder's thread, its calls in the
event loop, and in Scrapy the handlers of signals with their dispatch. Runs with and without the view are not compared:
single runs differ by several times what it costs.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.benchmark import BenchmarkOptions
from gossamer.model import DATA_DIR

_AT_MOST = 0.03
_PROGRAM = """
import sys, time
from gossamer.telemetry import performance
spent, began = [0.0], time.monotonic()
def timed(owner, name):
    original = getattr(owner, name)
    def call(*given, **named):
        begin = time.thread_time()
        try:
            return original(*given, **named)
        finally:
            spent[0] += time.thread_time() - begin
    setattr(owner, name, call)
for owner, name in (
    (performance.PerformanceRecorder, "_run"), (performance.PerformanceRecorder, "__init__"),
    (performance.LoopPing, "_answer"),
):
    timed(owner, name)
stop = performance.PerformanceRecorder.stop
def stopped(recorder):
    stop(recorder)
    seconds = time.monotonic() - began
    print("view", spent[0], time.process_time(), seconds, file=sys.stderr, flush=True)
performance.PerformanceRecorder.stop = stopped
"""
_WORKER = """
from gossamer.__main__ import main
main()
"""
_SCRAPY = """
from types import SimpleNamespace
from scrapy import signals
from scrapy.signalmanager import SignalManager
from gossamer.scrapy import benchmark
from gossamer.scrapy.performance import _EngineStages
def timed_handler(name):
    original = getattr(_EngineStages, name)
    if name == "_response_received":
        def call(self, response, request):
            begin = time.thread_time()
            original(self, response, request)
            spent[0] += time.thread_time() - begin + dispatch
    else:
        def call(self, response):
            begin = time.thread_time()
            original(self, response)
            spent[0] += time.thread_time() - begin + dispatch
    setattr(_EngineStages, name, call)
def cost_of_dispatch():
    sender, times = object(), []
    for handlers in (1, 2):
        manager = SignalManager(sender)
        kept = [lambda response: None for _ in range(handlers)]
        for handler in kept:
            manager.connect(handler, signals.item_scraped)
        turns = []
        for _ in range(10):
            begin = time.thread_time()
            for _ in range(1000):
                manager.send_catch_log(signals.item_scraped, item=None, response=None, spider=None)
            turns.append((time.thread_time() - begin) / 1000)
        times.append(min(turns))
    return times[1] - times[0]
dispatch = cost_of_dispatch()
timed_handler("_response_received")
timed_handler("_item_scraped")
sys.exit(benchmark.main())
"""


def share(name: str, arguments: list[str]) -> float:
    """Run a program to its end, print what the view cost it, and return that as a share of its CPU time."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", *arguments]
        ran = subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        files = list(Path(folder).glob(f"{DATA_DIR}/performance/*.jsonl"))
    shown = [line.split() for line in ran.stderr.splitlines() if line.startswith("view ")]
    assert shown, f"{name} failed:\n{ran.stderr[-3000:]}"
    assert files, f"{name} kept no recording"
    view, whole, seconds = (float(part) for part in shown[-1][1:])
    print(
        f"{name}: {view:.3f} s of {whole:.2f} s of CPU: {view / whole:.1%}; {view / seconds:.1%} of one CPU in "
        f"{seconds:.1f} s",
        flush=True,
    )
    return view / whole


def scrapy(items: int, items_per_page: int) -> float:
    """Return the share in a Scrapy process."""
    given = BenchmarkOptions(
        items=items, items_per_page=items_per_page, response_time=0.0, concurrency=32, log_seconds=5.0
    )
    options = msgspec.json.encode(given).decode()
    with subprocess.Popen(
        [sys.executable, "-m", "gossamer.fakeweb.benchmark", options],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as server:  # fmt: skip
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        return share(f"Scrapy, {items_per_page} items a page", [_PROGRAM + _SCRAPY, url, options, "0"])


def worker(pages: int) -> float:
    """Return the share in `gossamer crawl`."""
    with FakeWeb.start(WebSpec(hosts=4, pages=pages, page_bytes=12_000, out_degree=20)) as web:
        resolve = [part for override in web.resolve_overrides() for part in ("--resolve", override)]
        crawl = ["crawl", *web.seeds(), "--scope", "any", "--rate", "100000/1", "-q", *resolve]
        return share("worker", [_PROGRAM + _WORKER, *crawl])


def main() -> int:
    """Measure both. Returns the exit code: 0 if the view costs less than 3 %."""
    parser = argparse.ArgumentParser(prog="python -m bench.view", description=__doc__)
    parser.add_argument("--pages", type=int, default=2000, help="pages of each run (default: 2000)")
    given = parser.parse_args()
    shares = [scrapy(given.pages, 1), scrapy(given.pages * 4, 20), worker(given.pages)]
    return 0 if max(shares) < _AT_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
