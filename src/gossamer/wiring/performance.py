"""Measures a worker of this process for `gossamer top` and `gossamer diagnose`.

The scheduler of a worker is the frontier, which all workers share; its length is not read. Requests in progress are in
the downloader, and finished pages that wait to be written and settled are in the pipelines. Safe to change: everything;
the form of the recordings is that of telemetry/recordings.py.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from gossamer.fetch.budget import ByteBudget
from gossamer.model.crawl import Run
from gossamer.model.performance import MeasuredProcess, StageLimits
from gossamer.settings import Settings
from gossamer.telemetry.performance import Counts, Occupancy, PerformanceRecorder, Waiting
from gossamer.telemetry.recordings import FOLDER
from gossamer.telemetry.tally import Tally
from gossamer.worker.worker import Worker


@contextmanager
def performance_recorded(
    settings: Settings, worker: Worker, tally: Tally, budget: ByteBudget, *, pool: str, run: Run | None
) -> Iterator[None]:
    """Record the measurements of a worker in the data directory while the context is open.

    `tally`: the worker's counters. `budget`: bytes of its bodies. The recording has the name of the crawl, or of the
    pool where the worker has no crawl of its own (`run` None)."""
    process = MeasuredProcess(
        name=run.crawl.id.crawlid if run is not None else pool,
        kind="worker",
        host=os.uname().nodename,
        pid=os.getpid(),
        started=round(time.time(), 3),
        limits=StageLimits(requests=settings.worker.concurrency, bytes=budget.limit_bytes),
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
    )
    recorder = PerformanceRecorder(process, _WorkerStages(worker, tally, budget), settings.data_dir / FOLDER)
    recorder.start()
    try:
        yield
    finally:
        recorder.stop()


class _WorkerStages:
    """Reads the stages of a worker, for the recorder's thread."""

    def __init__(self, worker: Worker, tally: Tally, budget: ByteBudget) -> None:
        self._worker = worker
        self._tally = tally
        self._budget = budget
        self._loop = asyncio.get_running_loop()

    @property
    def counts(self) -> Counts:
        """Return the counters, from those that the worker keeps anyway."""
        tally = self._tally
        responses = sum(tally.responses.copy().values())
        return Counts(
            requested=responses,
            responses=responses,
            page_responses=tally.pages + sum(tally.failed.copy().values()),
            response_seconds=tally.response_seconds,
            response_bytes=tally.bytes,
            items=tally.items,
        )

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the event loop call this."""
        self._loop.call_soon_threadsafe(call)

    def occupancy(self) -> Occupancy:
        """Return what is in the stages."""
        in_flight, budget = self._worker.in_flight, self._budget
        return Occupancy(
            downloader=in_flight,
            transferring=in_flight,
            pipelines=self._worker.committing,
            held_bytes=budget.held_bytes + budget.complete_bytes + budget.retained_bytes,
            is_downloader_full=in_flight >= self._worker.slots,
            is_bytes_full=budget.is_full,
        )

    def waiting(self) -> Waiting:
        """Return that all requests are the frontier's."""
        return Waiting(pages=self._worker.in_flight)
