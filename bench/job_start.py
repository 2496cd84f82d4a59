"""`python -m bench.job_start`: how long a job of an idle `gossamer scrapyd` takes from its request to its process.

A client schedules one job after the other, and waits for the end of each. The job's process is a stand-in that notes
when it begins; Scrapy itself would need another second to load. Times are those of one monotonic clock of the machine.
Exit code 1: the 99th percentile is over the limit. Another load on the machine makes the figures worse.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.servers.scrapyd import egg, scrapyd, spider, until

_LIMIT_SECONDS = 0.3


def measure(folder: Path, jobs: int) -> tuple[list[float], list[float]]:
    """Return the seconds until each request was answered, and until each job's process ran."""
    judge = folder / "judge"
    answered, started = [], []
    with scrapyd(folder, conf="max_proc = 4", quick=True) as server:
        server.deploy(egg(spider("quick")))
        for number in range(jobs + 1):
            begun = time.monotonic()
            name = server.post("schedule", project="shop", spider="quick", judge=judge, seconds=0, end="good")["jobid"]
            replied = time.monotonic()
            until(lambda name=name: server.get("status", job=name)["currstate"] == "finished")
            if number:  # the first one also loads files that the others find in memory
                answered.append(replied - begun)
                started.append(_begin_of(judge, name) - begun)
    return answered, started


def _begin_of(judge: Path, job: str) -> float:
    notes = (json.loads(line) for line in judge.read_text().splitlines())
    return next(float(note["at"]) for note in notes if note["job"] == job and note["event"] == "begin")


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make bench-jobs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100, help="number of jobs (default: 100)")
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder:
        answered, started = measure(Path(folder), jobs)
    print(f"{jobs} jobs on an idle node, in milliseconds")
    print(f"{'':24}{'median':>8}{'p90':>8}{'p99':>8}{'most':>8}")
    for name, times in (("request answered", answered), ("process runs", started)):
        figures = [_percentile(times, share) for share in (0.5, 0.9, 0.99, 1.0)]
        print(f"{name:24}" + "".join(f"{1000 * figure:8.0f}" for figure in figures))
    slowest = _percentile(started, 0.99)
    print(f"Limit of the 99th percentile: {1000 * _LIMIT_SECONDS:.0f} ms. Scrapyd polls every 5 seconds.")
    sys.exit(slowest > _LIMIT_SECONDS)


if __name__ == "__main__":
    main()
