"""Figures of running processes, noted at even intervals while something else goes on."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil


@dataclass(frozen=True, slots=True)
class Sample:
    """`seconds` since the sampler began."""

    seconds: float
    figures: Mapping[str, float]


class Sampler:
    """Calls `read` in a thread of its own until the block ends; `samples` grows meanwhile.

    A reading that fails because what is asked is gone (OSError, psutil.Error) is left out.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]], *, every_seconds: float = 1.0) -> None:
        self.samples: list[Sample] = []
        self._read = read
        self._every_seconds = every_seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()

    def column(self, name: str) -> list[float]:
        """One figure of every sample, in order."""
        return [sample.figures[name] for sample in self.samples]

    def _run(self) -> None:
        began = time.monotonic()
        while True:
            try:
                figures = self._read()
            except (OSError, psutil.Error):
                pass
            else:
                self.samples.append(Sample(time.monotonic() - began, figures))
            if self._stop.wait(self._every_seconds):
                return


def memory_of(pid: int) -> int:
    """Resident bytes of the process. Raises psutil.Error when it is gone."""
    return int(psutil.Process(pid).memory_info().rss)


def cpu_of(pid: int) -> float:
    """Seconds of CPU, user and system, since the process began. Raises psutil.Error when it is gone."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
