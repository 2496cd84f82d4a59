"""Memory of a crawl of 2,000 rendered pages in one worker with four tabs: of the worker, and of all its browsers.

    python -m bench.browser_memory [--pages 2000]

The practice site that scripts build (`--scripted`) is crawled. Prints the memory for each 250 pages and for each
browser, and fails if it grows after the first quarter, or exceeds 900 MiB. Memory is counted as PSS: what processes
share is divided among them.

A browser is replaced after 500 pages, and the next one runs beside it for a moment. So memory rises and falls, and
growth is not to be seen from one moment to another. What is compared is a browser with the one before at the same age
(from its 100th to its 400th page), and the worker's own memory by quarters of the pages.
"""

import argparse
import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from gossamer.fakeweb import WebSpec, serve

_POLL_SECONDS = 0.5
_STEP = 250
_MOST_GROWTH = 1.1
"""Growth from the second browser to the last one, and of the worker from the second quarter to the last one."""
_COMPARED_AGE = (100, 400)
"""Pages of a browser from which and up to which its memory is compared."""
_MOST_MIB = 900
_LEAST_LIVES = 3
_LEAST_BROWSER_MIB = 50
"""Memory of a group that is a browser. The shell beside it takes less."""


class Sample(NamedTuple):
    """Memory in MiB at one moment."""

    pages: int
    """Pages that were built by then."""
    worker: float
    browsers: dict[int, float]
    """By process group."""

    @property
    def total(self) -> float:
        """Memory of all processes."""
        return self.worker + sum(self.browsers.values())


async def main() -> int:
    """Crawl, measure, print, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    pages = parser.parse_args().pages
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory() as folder:
        async with serve(WebSpec(hosts=1, pages=1, scripted=pages)) as web:
            steps = ("scroll 200", "click .more 200", "fill #q=all", "submit #search")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gossamer", "crawl", f"http://scripted.test:{web.port}/"),
                *("--resolve", "scripted.test:127.0.0.1", "--rate", "10000/1", "--domain-concurrency", "16"),
                *("--render", "always", "-o", "pages.jsonl"),
                *(part for step in steps for part in ("--render-step", step)),
                cwd=folder,
                env=os.environ | {"GOSSAMER_BROWSER__SECONDS": "600"},
                stdout=asyncio.subprocess.DEVNULL,
            )
            while process.returncode is None:
                built = sum(record.path.startswith("/api/item/") for record in web.log())
                samples.append(Sample(built, *memory_of(process.pid)))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _POLL_SECONDS)
    return report(samples, pages)


def memory_of(parent: int) -> tuple[float, dict[int, float]]:
    """Return the memory of a process, and of all processes below it by their groups, in MiB."""
    children: dict[int, list[tuple[int, int]]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            _, above, group, *_ = place.read_text().rpartition(")")[2].split()
            children.setdefault(int(above), []).append((int(place.parent.name), int(group)))
    groups: dict[int, float] = {}
    left = [parent]
    while left:
        for number, group in children.get(left.pop(), []):
            left.append(number)
            groups[group] = groups.get(group, 0.0) + pss(number)
    return pss(parent), groups


def pss(number: int) -> float:
    """Return the memory of one process in MiB. 0: it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{number}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def report(samples: list[Sample], pages: int) -> int:
    """Print the memory by pages and by browser, and return the exit code."""
    print(f"{'pages':>11}  {'worker':>7}  {'all, median':>11}  {'all, most':>9}   MiB")
    for first in range(0, pages, _STEP):
        if of_step := [one for one in samples if first <= one.pages < first + _STEP]:
            totals = [one.total for one in of_step]
            worker = statistics.median(one.worker for one in of_step)
            print(
                f"{first:>5}-{first + _STEP:<5}  {worker:7.0f}  {statistics.median(totals):11.0f}  {max(totals):9.0f}"
            )
    built = max(one.pages for one in samples)
    if built < pages:
        print(f"only {built:,} of {pages:,} pages were built")
    lives = lives_of(samples)
    print("each browser from its 100th to its 400th page:", ", ".join(f"{mib:.0f}" for mib in lives), "MiB")
    if len(lives) < _LEAST_LIVES:
        print(f"{len(lives)} browsers built 400 pages: too few to compare")
        return 1
    quarters = [
        statistics.median(one.worker for one in samples if at * built <= 4 * one.pages <= (at + 1) * built)
        for at in range(4)
    ]
    browsers, worker = lives[-1] / lives[1], quarters[3] / quarters[1]
    most = max(one.total for one in samples)
    print(
        f"most {most:.0f} MiB; the last browser has {browsers:.2f} times the memory of the second one; the worker has "
        f"{worker:.2f} times as much in the last quarter as in the second one"
    )
    return int(built < pages or most > _MOST_MIB or max(browsers, worker) > _MOST_GROWTH)


def lives_of(samples: list[Sample]) -> list[float]:
    """Return the median memory of each browser at the compared age, in the order in which they were started. A browser
    that did not reach the age is left out."""
    begins: dict[int, int] = {}
    by_age: dict[int, list[tuple[int, float]]] = {}
    for one in samples:
        for group, mib in one.browsers.items():
            begin = begins.setdefault(group, one.pages)
            by_age.setdefault(group, []).append((one.pages - begin, mib))
    youngest, oldest = _COMPARED_AGE
    return [
        statistics.median(mib for age, mib in found if youngest <= age < oldest)
        for found in by_age.values()
        if max(age for age, _ in found) >= oldest and max(mib for _, mib in found) > _LEAST_BROWSER_MIB
    ]


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
