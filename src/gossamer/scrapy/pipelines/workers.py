"""Item pipelines for work that takes time: blocking calls in threads, computations in processes.

Fixed: the names of the classes, methods and settings, which projects write. Safe to change: the defaults.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, ClassVar, Final, Self

from scrapy.crawler import Crawler

from gossamer.errors import BadSetting
from gossamer.scrapy.options import abort
from gossamer.scrapy.pipelines.background import outcome

log = logging.getLogger(__name__)

WORKER_SETTINGS: Final[dict[str, tuple[int, str]]] = {
    "THREAD_PIPELINE_THREADS": (8, "Threads of each `ThreadPipeline`. Further items wait"),
    "PROCESS_PIPELINE_PROCESSES": (0, "Processes of each `ProcessPipeline`. 0: as many as the machine has cores"),
}
"""Default and meaning by name."""


class ThreadPipeline:
    """Base class of pipelines with blocking work: `work` runs in one of THREAD_PIPELINE_THREADS threads.

    `work` is called by several threads at a time; `lock` is for state that they share.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.lock = threading.Lock()
        """Lock for state that the threads share. The pipeline itself does not use it."""
        threads = positive(crawler, "THREAD_PIPELINE_THREADS", WORKER_SETTINGS["THREAD_PIPELINE_THREADS"][0])
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=type(self).__name__)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def work(self, item: Any) -> Any:
        """Return the item for the next pipeline. It may block. Raise DropItem to drop the item. Override this."""
        raise NotImplementedError

    async def process_item(self, item: Any) -> Any:
        """Return what `work` returns."""
        return await outcome(self._executor.submit(self.work, item))

    async def close_spider(self) -> None:
        """End the threads. Scrapy closes a spider after its last item, so they are idle."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class ProcessPipeline:
    """Base class of pipelines that compute: `compute` runs in one of PROCESS_PIPELINE_PROCESSES processes.

    `compute` is a static method, and items and results must be picklable. When a process dies (out of memory, a crash
    in C), its items are computed again, one at a time in another process. An item that ends that one, too, passes on
    unchanged, and is counted as `process_pipeline/failures`.
    """

    compute: ClassVar[Callable[[Any], Any]]
    """Returns the item for the next pipeline; must be a static method of the class, or a function of a module."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._processes = positive(crawler, "PROCESS_PIPELINE_PROCESSES", os.cpu_count() or 1)
        self._executor: Executor = _new_processes(self._processes)
        self._alone = ThreadPoolExecutor(1, thread_name_prefix=type(self).__name__)
        """Hands one item at a time to the single process."""
        self._single: Executor | None = None
        """Process for items whose first process has died."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        """Return what `compute` returns."""
        executor = self._executor
        try:
            return await outcome(executor.submit(type(self).compute, item))
        except BrokenProcessPool:
            self._stats.inc_value("process_pipeline/broken")
        if executor is self._executor:  # the first of the items that were in it
            executor.shutdown(wait=False)
            self._executor = _new_processes(self._processes)
        try:
            return await outcome(self._alone.submit(self._compute_alone, item))
        except BrokenProcessPool:
            log.warning("The process of %s ended while it computed %.200r; the item stays as it is", type(self), item)
            self._stats.inc_value("process_pipeline/failures")
            return item

    async def close_spider(self) -> None:
        """End the processes. Scrapy closes a spider after its last item, so they are idle."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._alone.shutdown(wait=False, cancel_futures=True)
        if self._single is not None:
            self._single.shutdown(wait=False, cancel_futures=True)

    def _compute_alone(self, item: Any) -> Any:
        """Return the result. Raises BrokenProcessPool if this very item ends the process."""
        if self._single is None:
            self._single = _new_processes(1)
        try:
            return self._single.submit(type(self).compute, item).result()
        except BrokenProcessPool:
            self._single.shutdown(wait=False)
            self._single = None
            raise


def _new_processes(count: int) -> Executor:
    # Not fork: this process has threads. Ctrl-C is for Scrapy, which lets items end.
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts)


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def positive(crawler: Crawler, name: str, default: int) -> int:
    """Return a setting that is a whole number from 1 up; the default if it is 0 or not set. Stops the start with one
    line for any other value."""
    value = crawler.settings.get(name)
    try:
        number = int(value or 0)
    except (TypeError, ValueError):
        number = -1
    if number < 0:
        abort(BadSetting(f"{name}: {value!r} is not a whole number from 0 up"))
    return number or default
