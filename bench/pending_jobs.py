"""`python -m bench.pending_jobs`: what a queue of 10,000 jobs of 50 projects costs, on SQLite and on PostgreSQL.

Measured are adding a job, a page of 100 jobs, and taking one job for a node, each as one transaction of the platform's
state. Exit code 1: a median is over the limit. Another load on the machine makes the figures worse.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable

from sqlalchemy import Connection

from gossamer_platform.state import jobs, projects
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.jobs import JobFilter, NewJob
from tests.servers.postgresql import postgresql

_PROJECTS = 50
_BATCH = 500
_ROUNDS = 50
_LIMIT_SECONDS = 0.02


def _add_projects(connection: Connection) -> None:
    for number in range(_PROJECTS):
        name = f"project-{number}"
        version = projects.add_version(connection, name, "1", digest="d", file=f"{name}/1.egg")
        projects.take_listing(connection, "node")
        projects.record_listing(connection, version, incarnation="node", spiders=["spider"], fault="")


def _add_jobs(connection: Connection, first: int, count: int) -> None:
    for number in range(first, first + count):
        jobs.add_job(connection, NewJob(f"project-{number % _PROJECTS}", "spider", f"job-{number}"))


async def _median(act: Callable[[int], Awaitable[object]]) -> float:
    taken = []
    for number in range(_ROUNDS):
        begun = time.perf_counter()
        await act(number)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


async def measure(url: str, waiting: int) -> dict[str, float]:
    """Return the medians in seconds."""
    database = StateDatabase(url)
    await database.migrate()
    await database.write(_add_projects)
    for first in range(0, waiting, _BATCH):
        await database.write(lambda c, first=first: _add_jobs(c, first, _BATCH))  # type: ignore[misc]
    medians = {
        "add": await _median(lambda number: database.write(lambda c: _add_jobs(c, waiting + number, 1))),
        "page of 100": await _median(
            lambda _: database.read(lambda c: jobs.job_page(c, JobFilter(), before=None, limit=100))
        ),
        "take": await _median(
            lambda number: database.write(lambda c: take_jobs(c, JobTaker("node", f"call-{number}", 100), free=1))
        ),
    }
    await database.close()
    return medians


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="make bench-pending", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000, help="jobs that wait (default: 10,000)")
    waiting = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as folder, postgresql() as server:
        urls = {"SQLite": f"sqlite:///{folder}/state.db", "PostgreSQL": server.new_database()}
        found = {name: asyncio.run(measure(url, waiting)) for name, url in urls.items()}
    print(f"{waiting:,} jobs of {_PROJECTS} projects wait; medians of {_ROUNDS}, limit {_LIMIT_SECONDS * 1000:g} ms")
    for what in next(iter(found.values())):
        print(f"{what:<12}", *(f"{name} {medians[what] * 1000:5.1f} ms" for name, medians in found.items()), sep="  ")
    sys.exit(any(value > _LIMIT_SECONDS for medians in found.values() for value in medians.values()))


if __name__ == "__main__":
    main()
