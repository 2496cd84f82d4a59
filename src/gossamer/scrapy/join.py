"""How a process comes into its crawl: it joins an unfinished run, and begins the next one after a finished run."""

import os
import time

from gossamer.errors import CrawlRefused
from gossamer.frontier.base import Frontier, RunFinished
from gossamer.model.crawl import Crawl, CrawlState, Run

_LOADED = time.monotonic()
_last_end = float("-inf")


async def join(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    """Return the run that this process works on, with this project's requested rate and concurrency.

    `fresh`: the run after a finished one has seen nothing. A run that finished since this process was started is the
    process's own, and its start requests are duplicates there: processes that were started together are one run,
    however long each takes to load. Raises CrawlRefused for a crawl that was stopped or has expired.
    """
    try:
        run = await _joined(frontier, crawl, fresh=fresh)
    except RunFinished as finished:
        return finished.run
    if (run.crawl.rate, run.crawl.concurrency) != (crawl.rate, crawl.concurrency):
        run = await frontier.set_wish(run, rate=crawl.rate, concurrency=crawl.concurrency)
    return run


async def _joined(frontier: Frontier, crawl: Crawl, *, fresh: bool) -> Run:
    if not fresh:
        return await frontier.open_crawl(crawl, age_seconds=age_seconds())
    while True:
        try:
            return await frontier.open_crawl(crawl, fresh=True, age_seconds=age_seconds())
        except CrawlRefused:
            info = await frontier.crawl_info(crawl.id)
            if info is not None and info.state not in (CrawlState.RUNNING, CrawlState.FINISHED):
                raise
        # Another process began it, or it is not finished yet.
        if info is not None and info.state is CrawlState.RUNNING:
            return await frontier.open_crawl(crawl, age_seconds=age_seconds())


def age_seconds() -> float:
    """Return the seconds since this process was started, or since a crawl in it last ended.

    A program may crawl several times in one process; then each crawl is started by the end of the one before.
    """
    now = time.monotonic()
    return min(max(_process_age(), now - _LOADED), now - _last_end)


def note_end() -> None:
    """Remember that a crawl of this process has ended."""
    global _last_end
    _last_end = time.monotonic()


def _process_age() -> float:
    """Seconds since the process was started; 0 where the system does not say."""
    try:
        with open("/proc/self/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - started
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
