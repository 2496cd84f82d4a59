"""`python -m bench.job_start`: how long a job of an idle node takes from its request to its process.

Measured are `gossamer scrapyd`, and a manager with a node, on SQLite and on PostgreSQL. A client requests one job after
the other, and waits for the end of each. The job's process is a stand-in that notes when it begins; Scrapy itself would
need another second to load. Times are those of one monotonic clock of the machine. Exit code 1: a 99th percentile is
over the limit. Another load on the machine makes the figures worse.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.servers.platform import RunningManager, RunningNode, running
from tests.servers.postgresql import postgresql
from tests.servers.scrapyd import egg, scrapyd, spider, until

_LIMIT_SECONDS = 0.3
_NODE_LIMIT_SECONDS = 60.0


class Starter(NamedTuple):
    """A platform that runs jobs of the stand-in."""

    request: Callable[[int], str]
    """Requests a job, and returns its name in the stand-in's notes."""
    wait: Callable[[str], None]
    """Waits for the job's end."""


@contextlib.contextmanager
def one_process(folder: Path, judge: Path) -> Iterator[Starter]:
    """`gossamer scrapyd`."""
    with scrapyd(folder, conf="max_proc = 4", quick=True) as server:
        server.deploy(egg(spider("quick")))
        yield Starter(
            lambda _: server.post("schedule", project="shop", spider="quick", judge=judge, seconds=0, end="good")[
                "jobid"
            ],
            lambda job: until(lambda: server.get("status", job=job)["currstate"] == "finished"),
        )


@contextlib.contextmanager
def manager_and_node(folder: Path, judge: Path, *options: str) -> Iterator[Starter]:
    """A manager, and a node that calls it over HTTP."""
    manager = RunningManager(folder / "manager", *options, limit_seconds=_NODE_LIMIT_SECONDS)
    numbers: dict[str, int] = {}

    def request(number: int) -> str:
        name = f"job-{number}"
        arguments = {"judge": str(judge), "title": name, "seconds": "0", "end": "good"}
        numbers[name] = manager.create("quick", arguments=arguments)
        return name

    with running(manager):
        node = RunningNode(folder / "node", [manager.url], name="one", slots=4, quick=True)
        with running(node):
            manager.when_node("one", "online")
            manager.deploy(egg(spider("quick")))
            yield Starter(request, lambda name: manager.ended(numbers[name]))


def measure(starter: Starter, judge: Path, jobs: int) -> tuple[list[float], list[float]]:
    """Return the seconds until each request was answered, and until each job's process ran."""
    answered, started = [], []
    for number in range(jobs + 1):
        begun = time.monotonic()
        name = starter.request(number)
        replied = time.monotonic()
        starter.wait(name)
        if number:  # the first one also loads files that the others find in memory
            answered.append(replied - begun)
            started.append(_begin_of(judge, name) - begun)
    return answered, started


def _begin_of(judge: Path, job: str) -> float:
    notes = (json.loads(line) for line in judge.read_text().splitlines())
    return next(float(note["at"]) for note in notes if note["job"] == job and note["event"] == "begin")


def _percentile(times: Sequence[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def _measure_all(folder: Path, jobs: int) -> Iterator[tuple[str, list[float], list[float]]]:
    with postgresql() as server:
        shared = ("--database", server.new_database())
        ways = {
            "gossamer scrapyd": one_process,
            "manager and node, SQLite": manager_and_node,
            "manager and node, PostgreSQL": lambda place, judge: manager_and_node(place, judge, *shared),
        }
        for number, (name, way) in enumerate(ways.items()):
            place = folder / str(number)
            place.mkdir()
            judge = place / "judge"
            judge.touch()
            with way(place, judge) as starter:
                yield name, *measure(starter, judge, jobs)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make bench-jobs", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=100, help="number of jobs (default: 100)")
    jobs = parser.parse_args().jobs
    print(f"{jobs} jobs on an idle node, in milliseconds")
    print(f"{'':48}{'median':>8}{'p90':>8}{'p99':>8}{'most':>8}")
    slowest = 0.0
    with tempfile.TemporaryDirectory(prefix="gossamer-bench-") as folder:
        for way, answered, started in _measure_all(Path(folder), jobs):
            for what, times in (("request answered", answered), ("process runs", started)):
                figures = [_percentile(times, share) for share in (0.5, 0.9, 0.99, 1.0)]
                print(f"{f'{way}: {what}':48}" + "".join(f"{1000 * figure:8.0f}" for figure in figures), flush=True)
            slowest = max(slowest, _percentile(started, 0.99))
    print(f"Limit of the 99th percentile: {1000 * _LIMIT_SECONDS:.0f} ms. Scrapyd polls every 5 seconds.")
    sys.exit(slowest > _LIMIT_SECONDS)


if __name__ == "__main__":
    main()
