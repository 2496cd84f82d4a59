"""Pipelines of a project: blocking work in threads, computations in processes."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem

from gossamer.scrapy.pipelines import LookupPipeline, ProcessPipeline, ThreadPipeline


class Blocking(ThreadPipeline):
    """Each call waits for another one, so it ends only if two run at a time, and never more than THREADS."""

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        self._two = threading.Barrier(2)
        self._now = 0

    def work(self, item: Any) -> Any:
        with self.lock:
            self._now += 1
            item["at_a_time"] = self._now
        self._two.wait(30)
        with self.lock:
            self._now -= 1
        item["thread"] = threading.current_thread() is not threading.main_thread()
        return item


class Computing(ProcessPipeline):
    """A process of the machine's that ends at the first `fatal` item, and at every `deadly` one."""

    @staticmethod
    def compute(item: Any) -> Any:
        if item.get("fatal") and not os.path.exists(item["fatal"]):
            Path(item["fatal"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if item.get("deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        return {**item, "pid": os.getpid()}


class Values(LookupPipeline):
    """Looks up the `value` of a `key`. Its `parse` has a defect: it divides by the answer's `by`."""

    name = "value_pipeline"

    def parse(self, answer: Any) -> Any:
        return answer["value"] // answer.get("by", 1)


class Unreadable(Exception):
    """An exception that pickle cannot make again."""

    def __init__(self, text: str, _more: object) -> None:
        super().__init__(text)


def fail(item: Any) -> Any:
    """Fail in the way that the item names."""
    match item.get("way"):
        case "stop":
            return next(iter([]))
        case "exit":
            raise SystemExit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "unreadable":
            raise Unreadable("cannot be made again", None)
        case "unpicklable":
            return {**item, "result": lambda: None}
        case "drop":
            raise DropItem("not wanted")
    return {**item, "done": True}


class FailingInThreads(ThreadPipeline):
    def work(self, item: Any) -> Any:
        return fail(item)


class FailingInProcesses(ProcessPipeline):
    compute = staticmethod(fail)


def stick(item: Any) -> Any:
    """Note this process, and never return."""
    Path(item["mark"]).write_text(str(os.getpid()))
    while True:
        time.sleep(60)


class StuckInThreads(ThreadPipeline):
    def work(self, item: Any) -> Any:
        return stick(item)


class StuckInProcesses(ProcessPipeline):
    compute = staticmethod(stick)


class Marked:
    """Gives each item the path of a file that tells what works on it."""

    def process_item(self, item: Any) -> Any:
        return {**item, "mark": str(Path.cwd() / "mark")}
