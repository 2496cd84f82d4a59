"""Memory of a crawl of 2,000 rendered pages in one worker with four tabs: of the worker, and of all its browsers.

    python -m bench.browser_memory [--pages 2000]

The practice site that scripts build (`--scripted`) is crawled. Prints the memory for each 250 pages, and fails if it
grows after the first quarter, or exceeds 900 MiB. Memory is counted as PSS: what processes share
is divided among them.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path

from gossamer.fakeweb import WebSpec, serve

_POLL_SECONDS = 0.5
_STEP = 250
_MOST_GROWTH = 1.1
"""Growth from the second quarter of the pages to the last one. Browsers are replaced after 500 pages, so memory falls
and rises again; less would call that growth."""
_MOST_MIB = 900


async def main() -> int:
    """Crawl, measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    pages = parser.parse_args().pages
    samples: list[tuple[int, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with serve(WebSpec(hosts=1, pages=1, scripted=pages)) as web:
            steps = ("scroll 200", "click .more 200", "fill #q=all", "submit #search")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gossamer", "crawl", f"http://scripted.test:{web.port}/"),
                *("--resolve", "scripted.test:127.0.0.1", "--rate", "10000/1", "--domain-concurrency", "16"),
                *("--render", "always", "-o", "pages.jsonl"),
                *(part for step in steps for part in ("--render-step", step)),
                cwd=folder,
                env=os.environ | {"GOSSAMER_BROWSER__SECONDS": "300"},
                stdout=asyncio.subprocess.DEVNULL,
            )
            while process.returncode is None:
                built = sum(record.path.startswith("/api/item/") for record in web.log())
                samples.append((built, *memory_of(process.pid)))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _POLL_SECONDS)
    return report(samples, pages)


def memory_of(parent: int) -> tuple[float, float]:
    """Return the memory of a process, and of all processes below it, in MiB."""
    children: dict[int, list[int]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            children.setdefault(int(place.read_text().rpartition(")")[2].split()[1]), []).append(int(place.parent.name))
    below, left = [], [parent]
    while left:
        found = children.get(left.pop(), [])
        below += found
        left += found
    return pss(parent), sum(map(pss, below))


def pss(number: int) -> float:
    """Return the memory of one process in MiB. 0: it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def report(samples: list[tuple[int, float, float]], pages: int) -> int:
    """Print the memory by pages, and return the exit code."""
    print(f"{'pages':>11}  {'worker':>7}  {'browsers':>8}  {'all, median':>11}  {'all, most':>9}   MiB")
    for first in range(0, pages, _STEP):
        of_step = [one for one in samples if first <= one[0] < first + _STEP]
        if not of_step:
            continue
        totals = [worker + browsers for _, worker, browsers in of_step]
        worker, browsers = (statistics.median(one[at] for one in of_step) for at in (1, 2))
        figures = f"{worker:7.0f}  {browsers:8.0f}  {statistics.median(totals):11.0f}  {max(totals):9.0f}"
        print(f"{first:>5}-{first + _STEP:<5}  {figures}")
    most = max(worker + browsers for _, worker, browsers in samples)
    quarters = [
        statistics.median(one[1] + one[2] for one in samples if at * pages <= 4 * one[0] < (at + 1) * pages)
        for at in range(4)
    ]
    growth = quarters[3] / quarters[1]
    print(f"most {most:.0f} MiB; the last quarter of the pages has {growth:.2f} times the memory of the second one")
    return int(most > _MOST_MIB or growth > _MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
