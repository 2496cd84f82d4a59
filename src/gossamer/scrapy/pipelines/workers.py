"""Item pipelines for work that takes time: blocking calls in threads, computations in processes.

Fixed: the names of the classes, methods and settings, which projects write.
"""

import atexit
import logging
import multiprocessing
import os
import pickle
import queue
import signal
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
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

_COMPUTATIONS: Final = 2
"""Processes that may die of an item before it passes on unchanged."""


class DaemonThreads:
    """Threads that call functions. They do not keep the process alive: a second Ctrl-C ends it while they work, unlike
    with ThreadPoolExecutor."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[Any], Any], Any] | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._run, name=f"{name}_{number}", daemon=True).start()

    def submit(self, work: Callable[[Any], Any], item: Any) -> "Future[Any]":
        """Let a thread call `work` with the item. Further calls wait in their order."""
        future: Future[Any] = Future()
        self._calls.put((future, work, item))
        return future

    def close(self) -> None:
        """End the threads that are idle, and the others after their calls."""
        for _ in range(self._count):
            self._calls.put(None)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            future, work, item = call
            if future.set_running_or_notify_cancel():
                try:
                    result = work(item)
                except BaseException as error:
                    future.set_exception(_of_item(error))
                else:
                    future.set_result(result)
            del call, future, work, item  # an idle thread keeps no item


def _of_item(error: BaseException) -> Exception:
    """Return an exception that concerns one item. An item's SystemExit would end the crawl, and its StopIteration
    cannot be raised in a coroutine: the item would wait for ever."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    other = RuntimeError(f"the work on an item has raised {error!r}")
    other.__cause__ = error
    return other


class ThreadPipeline:
    """Base class of pipelines with blocking work: `work` runs in one of THREAD_PIPELINE_THREADS threads.

    `work` is called by several threads at a time; `lock` is for state that they share.
    """

    def __init__(self, crawler: Crawler) -> None:
        self.crawler = crawler
        self.lock = threading.Lock()
        """Lock for state that the threads share. The pipeline itself does not use it."""
        threads = positive(crawler, "THREAD_PIPELINE_THREADS", WORKER_SETTINGS["THREAD_PIPELINE_THREADS"][0])
        self._threads = DaemonThreads(threads, type(self).__name__)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def work(self, item: Any) -> Any:
        """Return the item for the next pipeline. It may block. Raise DropItem to drop the item. Override this."""
        raise NotImplementedError

    async def process_item(self, item: Any) -> Any:
        """Return what `work` returns."""
        return await outcome(self._threads.submit(self.work, item))

    async def close_spider(self) -> None:
        """End the threads. Scrapy closes a spider after its last item, so they are idle."""
        self._threads.close()


class _ProcessDied(Exception):
    """A computing process has ended before it had a result."""


class _ComputingProcess:
    """Process that computes one item at a time. It starts with the first item, and again after it has died."""

    _starting = threading.Lock()
    """Held while a process starts: multiprocessing is not made for starts in several threads."""

    def __init__(self) -> None:
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._is_over = False

    def compute(self, task: bytes) -> bytes:
        """Return the answer to a task. Raises _ProcessDied. Called by one thread at a time."""
        try:
            if self._connection is None:
                self._start()
            assert self._connection is not None
            self._connection.send_bytes(task)
            return self._connection.recv_bytes()
        except (EOFError, OSError) as error:
            self.end()
            raise _ProcessDied from error

    def end(self) -> None:
        """Let the process end, when it is idle."""
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None

    def kill(self) -> None:
        """End the process at once, and start no other one. May be called in any thread."""
        with self._starting:
            self._is_over = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")  # not fork: this process has threads
        with self._starting:
            if self._is_over:
                raise EOFError
            self._connection, theirs = context.Pipe()
            with theirs:  # so that the end of the process is seen
                self._process = context.Process(target=_compute_tasks, args=(theirs,))
                self._process.start()


class ProcessPipeline:
    """Base class of pipelines that compute: `compute` runs in one of PROCESS_PIPELINE_PROCESSES processes.

    `compute` is a static method, and items and results must be picklable. When a process dies (out of memory, a crash
    in C), its item is computed again in another process. An item that ends that one, too, passes on unchanged, and is
    counted as `process_pipeline/failures`. `process_pipeline/broken` counts processes that have died.
    """

    compute: ClassVar[Callable[[Any], Any]]
    """Returns the item for the next pipeline; must be a static method of the class, or a function of a module."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._stats = crawler.stats
        count = positive(crawler, "PROCESS_PIPELINE_PROCESSES", os.cpu_count() or 1)
        self._processes = [_ComputingProcess() for _ in range(count)]
        self._idle: queue.LifoQueue[_ComputingProcess] = queue.LifoQueue()
        """As many as threads. The last one first, so that no more start than are needed."""
        for process in self._processes:
            self._idle.put(process)
        self._threads = DaemonThreads(count, type(self).__name__)
        # multiprocessing waits for its processes when this one exits, and a second Ctrl-C must not wait for items.
        atexit.register(self._kill)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    async def process_item(self, item: Any) -> Any:
        """Return what `compute` returns."""
        result, deaths = await outcome(self._threads.submit(self._compute, item))
        if deaths:
            self._stats.inc_value("process_pipeline/broken", deaths)
        if deaths == _COMPUTATIONS:
            log.warning("The process of %s ended while it computed %.200r; the item stays as it is", type(self), item)
            self._stats.inc_value("process_pipeline/failures")
        return result

    async def close_spider(self) -> None:
        """End the processes. Scrapy closes a spider after its last item, so they are idle."""
        self._threads.close()
        for process in self._processes:
            process.end()
        atexit.unregister(self._kill)

    def _compute(self, item: Any) -> tuple[Any, int]:
        """Return the result, and the number of processes that have died of it. Raises what `compute` raises."""
        task = bytes(ForkingPickler.dumps((type(self).compute, item)))
        process = self._idle.get()
        try:
            for deaths in range(_COMPUTATIONS):
                try:
                    is_result, result = pickle.loads(process.compute(task))  # noqa: S301 (of our own process)
                except _ProcessDied:
                    continue
                if is_result:
                    return result, deaths
                raise result
        finally:
            self._idle.put(process)
        return item, _COMPUTATIONS

    def _kill(self) -> None:
        for process in self._processes:
            process.kill()


def _compute_tasks(connection: Connection) -> None:
    """Answer tasks until the crawl's process closes the connection. Runs in a computing process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for Scrapy, which lets items end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            task = connection.recv_bytes()
        except (EOFError, OSError):
            return
        connection.send_bytes(_answer(task))


def _end_with_parent() -> None:
    """End this process, whatever it computes, when the crawl's has ended: it may have been killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _answer(task: bytes) -> bytes:
    """Return the pickled result of a task, or the exception that was raised, in a form that can be read again."""
    try:
        compute, item = pickle.loads(task)  # noqa: S301 (of our own process)
        return bytes(ForkingPickler.dumps((True, compute(item))))
    except BaseException as raised:
        error = _of_item(raised)
        text = "".join(traceback.format_exception(raised))
    try:
        error.add_note(text)
        answer = bytes(ForkingPickler.dumps((False, error)))
        pickle.loads(answer)  # noqa: S301 (of our own process)
    except Exception:  # many exceptions cannot be made again from their texts
        other = RuntimeError(f"{type(error).__name__}: {error}")
        other.add_note(text)
        answer = bytes(ForkingPickler.dumps((False, other)))
    return answer


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
