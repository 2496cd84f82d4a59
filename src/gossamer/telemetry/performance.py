"""Measures a crawling process from a thread of its own, and keeps the measurements in a file that others read.

The thread looks at the process ten times a second, whatever the event loop does: so it also sees what blocks the loop,
and where in the code. Each second it appends a line to a file. Safe to change: the numbers below. Fixed: the thread
neither waits for the event loop nor writes to the process's objects.
"""

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Protocol

import msgspec

from gossamer.model.performance import MeasuredProcess, Measurement, Recording, largest
from gossamer.telemetry.recordings import RecordingFile

_TICK_SECONDS = 0.1
"""Interval at which the process is looked at. Tuning only: shorter is more exact and costs more CPU."""
_SLOW_TICKS = 3
"""Every so many ticks the thread also does what costs more: it reads the scheduler's length, and wakes the event loop.
Tuning only."""
_INTERVAL_SECONDS = 1.0
"""Interval of the measurements in the first hour."""
_LINES = 3600
"""Measurements after which a recording is halved: two become one, and the interval doubles. So a file of a long crawl
stays below about 2 MB."""
_STILL_SECONDS = 0.0005
"""Time for which a thread that is found inside a callback must use no CPU to count as blocked."""
_SURELY_BUSY = 0.95
"""Share of the time since the last look for which a thread must have used the CPU, or not used it, so that this wait is
not needed to know what it does. May be changed between 0.9 and 1."""


class Occupancy(NamedTuple):
    """Requests and items in the stages of a process at one moment."""

    downloader: int = 0
    transferring: int = 0
    scraper: int = 0
    pipelines: int = 0
    held_bytes: int = 0
    is_downloader_full: bool = False
    is_bytes_full: bool = False


class Waiting(NamedTuple):
    """Numbers that are read less often, because they cost more."""

    scheduler: int = 0
    pages: int = 0
    """Requests in the downloader that the scheduler gave out."""


class Counts(msgspec.Struct):
    """Counters of a process since its start. Each sum is explained at the field of `Measurement` with its name."""

    requested: int = 0
    responses: int = 0
    page_responses: int = 0
    response_seconds: float = 0.0
    response_bytes: int = 0
    items: int = 0
    lost_items: int = 0
    item_seconds: float = 0.0
    fastest_response: float = 0.0
    """Fastest since the last measurement, which resets it."""
    fastest_item: float = 0.0
    """Likewise."""


class MeasuredStages(Protocol):
    """A process that can be measured. All methods are called in the thread of the recorder, and only read."""

    @property
    def counts(self) -> Counts:
        """Return the counters now."""
        ...

    def occupancy(self) -> Occupancy:
        """Return what is in the stages now."""
        ...

    def waiting(self) -> Waiting:
        """Return what waits in the scheduler, and which requests are the scheduler's."""
        ...

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have the event loop call this. May raise RuntimeError after the end of the loop."""
        ...


class PerformanceRecorder:
    """Measures this process until `stop`, and keeps the measurements in a file of the folder."""

    def __init__(
        self,
        process: MeasuredProcess,
        stages: MeasuredStages,
        folder: Path | None,
        *,
        on_measurement: Callable[[Measurement], None] | None = None,
    ) -> None:
        """Call it in the thread of the event loop. `folder` None: nothing is written. `on_measurement` is called with
        each measurement, in the recorder's thread."""
        self.process = process
        self.measurements: list[Measurement] = []
        """Those of the recording, at most _LINES."""
        self._on_measurement = on_measurement
        self._file = RecordingFile(folder, process) if folder is not None else None
        self._interval = _INTERVAL_SECONDS
        self._current = _Interval(stages, _LoopThread())
        self._ping = _LoopPing(stages.call_soon)
        self._running = threading.Lock()  # held until the end; waiting for it is cheaper than for an Event
        self._running.acquire()
        self._thread = threading.Thread(target=self._run, name="gossamer-performance", daemon=True)

    @property
    def path(self) -> Path | None:
        """Path of the recording. None: nothing is written, or it could not be."""
        return self._file.path if self._file is not None and self._file.works else None

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the recording. The call takes at most some milliseconds."""
        self._running.release()
        self._thread.join()

    def recording(self) -> Recording:
        """Return what was measured so far."""
        return Recording(process=self.process, measurements=list(self.measurements))

    def _run(self) -> None:
        """Measure until the end. The body of the thread."""
        interval = self._current
        while not self._running.acquire(timeout=_TICK_SECONDS):
            with contextlib.suppress(RuntimeError):  # a set or dict has changed meanwhile
                if interval.look():
                    self._ping.send()
            if interval.age >= self._interval:
                with contextlib.suppress(RuntimeError):
                    self._keep(interval.end(self._ping))
        with contextlib.suppress(RuntimeError):
            self._keep(interval.end(self._ping))
        if self._file is not None:
            self._file.close(time.time())

    def _keep(self, measurement: Measurement) -> None:
        self.measurements.append(measurement)
        if self._file is not None:
            self._file.append(measurement)
        if len(self.measurements) >= _LINES:
            pairs = zip(self.measurements[::2], self.measurements[1::2], strict=False)
            self.measurements = [one.plus(other) for one, other in pairs]
            self._interval *= 2
            if self._file is not None:
                self._file.rewrite(self.measurements)
        if self._on_measurement is not None:
            self._on_measurement(measurement)


class _Interval:
    """Collects what is seen in one interval after the other."""

    def __init__(self, stages: MeasuredStages, thread: "_LoopThread") -> None:
        self._stages = stages
        self._thread = thread
        self._counts = Counts()
        self._cpus = _MachineCpus()
        self._ticks = 0
        self._waiting = Waiting()
        self._begin()

    def _begin(self) -> None:
        self._start = time.monotonic()
        self._cpu = time.process_time()
        self._loop_cpu, self._starved = self._thread.cpu(), self._thread.starved()
        self._looks = 0
        self._slow_looks = 0
        self._sums = [0] * len(Occupancy._fields)
        self._waiting_sums = [0, 0, 0, 0]
        self._blocked_in: Counter[str] = Counter()
        self._busy_in: Counter[str] = Counter()

    @property
    def age(self) -> float:
        """Seconds since the interval began."""
        return time.monotonic() - self._start

    def look(self) -> bool:
        """Look at the process once, and return whether the slow part was due."""
        place, is_blocked = self._thread.place()
        if place:
            (self._blocked_in if is_blocked else self._busy_in)[place] += 1
        self._looks += 1
        occupancy = self._stages.occupancy()
        self._sums = [total + value for total, value in zip(self._sums, occupancy, strict=True)]
        is_slow = self._ticks % _SLOW_TICKS == 0
        self._ticks += 1
        if is_slow:
            waiting = self._stages.waiting()
            values = (waiting.scheduler, waiting.pages, occupancy.downloader, waiting.scheduler == 0)
            self._waiting_sums = [total + value for total, value in zip(self._waiting_sums, values, strict=True)]
            self._slow_looks += 1
            self._cpus.look()
        return is_slow

    def end(self, ping: "_LoopPing") -> Measurement:
        """Return the measurement of this interval, and begin the next one."""
        seconds = self.age
        looks, slow_looks = max(1, self._looks), max(1, self._slow_looks)
        downloader, transferring, scraper, pipelines, held, full, bytes_full = (each / looks for each in self._sums)
        scheduler, pages, of_requests, empty = (each / slow_looks for each in self._waiting_sums)
        counts = self._stages.counts
        now = msgspec.structs.replace(counts)  # a copy, because the loop goes on counting
        was, self._counts = self._counts, now
        lag, longest_lag = ping.take()
        starved = self._thread.starved() - self._starved
        blocked = self._blocked_in.total() / looks - starved / seconds  # a starved thread stands still, too
        measurement = Measurement(
            at=round(time.time(), 3),
            seconds=round(seconds, 4),
            scheduler=_short(scheduler),
            downloader=_short(downloader),
            pages=_short(downloader * min(1.0, pages / of_requests) if of_requests else downloader),
            transferring=_short(transferring),
            scraper=_short(scraper),
            pipelines=_short(pipelines),
            held_bytes=_short(held),
            scheduler_empty=_short(empty),
            downloader_full=_short(full),
            bytes_full=_short(bytes_full),
            blocked=_short(max(0.0, blocked)),
            requested=now.requested - was.requested,
            responses=now.responses - was.responses,
            page_responses=now.page_responses - was.page_responses,
            response_seconds=_short(now.response_seconds - was.response_seconds),
            response_bytes=now.response_bytes - was.response_bytes,
            items=now.items - was.items,
            lost_items=now.lost_items - was.lost_items,
            item_seconds=_short(now.item_seconds - was.item_seconds),
            cpu=_short(time.process_time() - self._cpu),
            loop_cpu=_short(self._thread.cpu() - self._loop_cpu),
            starved=_short(max(0.0, starved)),
            idle_cpus=_short(self._cpus.idle()),
            fair_cpu=_short(self._cpus.fair()),
            lag=_short(lag),
            longest_lag=_short(longest_lag),
            fastest_response=_short(now.fastest_response),
            fastest_item=_short(now.fastest_item),
            items_in_all=now.items,
            pages_in_all=now.page_responses,
            blocked_in=largest(self._blocked_in) if blocked > 0 else {},
            busy_in=largest(self._busy_in),
        )
        counts.fastest_response = counts.fastest_item = 0.0
        self._begin()
        return measurement


def _short(number: float) -> float:
    """Return the number with as many digits as are worth keeping."""
    return round(number, 4)


_IDLE = frozenset((
    ("selectors.py", "select"), ("runners.py", "run"), ("base_events.py", "run_until_complete"),
    ("base_events.py", "run_forever"), ("asyncioreactor.py", "run"), ("epollreactor.py", "doPoll"),
    ("selectreactor.py", "doSelect"), ("pollreactor.py", "doPoll"),
))  # fmt: skip
"""Functions in which an event loop waits for events: file and name. The loop of uvloop has no frame of its own: the
innermost one is then that of its caller. May be extended by those of other loops."""
_LIBRARIES = (
    os.path.dirname(os.__file__),
    f"{os.sep}site-packages{os.sep}",
    os.path.dirname(os.path.dirname(__file__)),
)
"""Parts of the paths of files that are not the project's own code: Python's, installed packages', and ours."""


class _LoopThread:
    """The thread that runs the event loop: the one that makes this object."""

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._looked = 0.0, 0.0
        """CPU seconds of the thread, and time, at the last look."""
        self._clock = time.pthread_getcpuclockid(self._ident)
        self._schedstat = f"/proc/self/task/{threading.get_native_id()}/schedstat"

    def cpu(self) -> float:
        """Return the CPU seconds of the thread."""
        return time.clock_gettime(self._clock)

    def starved(self) -> float:
        """Return the seconds for which the thread could run and had no CPU. 0 where the system does not count them."""
        try:
            with open(self._schedstat) as file:
                return int(file.read().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def place(self) -> tuple[str, bool]:
        """Return where in the code the thread is, and whether it waits there. Empty: the loop waits for events."""
        used, now = self.cpu(), time.monotonic()
        share = (used - self._looked[0]) / (now - self._looked[1])
        self._looked = used, now
        frame = sys._current_frames().get(self._ident)
        if frame is None or _is_idle(frame):
            return "", False
        name = _place(frame)
        if share > _SURELY_BUSY or share < 1 - _SURELY_BUSY:
            return name, share < _SURELY_BUSY
        del frame  # keeps the thread's objects alive
        time.sleep(_STILL_SECONDS)
        is_still = self.cpu() - used < _STILL_SECONDS / 10
        later = sys._current_frames().get(self._ident)
        if later is None or (is_still and _place(later) != name):
            return "", False
        return name, is_still


def _is_idle(frame: FrameType) -> bool:
    code = frame.f_code
    return (code.co_filename.rpartition(os.sep)[2], code.co_name) in _IDLE


def _place(frame: FrameType) -> str:
    """Return the innermost place in the project's own code, or in any code if there is none: `file.py:12 function`.

    The program that was started, such as `bin/scrapy`, does not count: it is behind everything.
    """
    own: FrameType | None = frame
    while own is not None and any(part in own.f_code.co_filename for part in _LIBRARIES):
        own = own.f_back
    is_program = own is not None and own.f_back is None and own is not frame
    chosen = frame if own is None or is_program or own.f_code.co_filename.startswith("<") else own
    folder, _, file = chosen.f_code.co_filename.rpartition(os.sep)
    return f"{folder.rpartition(os.sep)[2]}/{file}:{chosen.f_lineno} {chosen.f_code.co_name}"


class _LoopPing:
    """Measures how long the event loop takes to handle something new."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._sent: float | None = None
        self._delays: list[float] = []

    def send(self) -> None:
        """Have the loop answer, if it has answered the last time."""
        if self._sent is None:
            self._sent = time.monotonic()
            try:
                self._call_soon(self._answer)
            except RuntimeError:  # the loop is closed
                self._sent = None

    def _answer(self) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            self._delays.append(time.monotonic() - sent)

    def take(self) -> tuple[float, float]:
        """Return mean and maximum in seconds since the last call."""
        delays, self._delays = self._delays, []
        sent = self._sent
        if sent is not None:
            delays = [*delays, time.monotonic() - sent]
        return (sum(delays) / len(delays), max(delays)) if delays else (0.0, 0.0)


class _MachineCpus:
    """Measures what the machine has left for this process. Where the system does not tell, nothing is idle, and a
    thread gets a whole CPU."""

    def __init__(self) -> None:
        self._count = os.cpu_count() or 1
        self._was = self._times()
        self._runnable: list[int] = []

    def _times(self) -> tuple[float, float]:
        try:
            with open("/proc/stat") as file:
                values = [int(value) for value in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return 0.0, 0.0
        return values[3] + values[4], sum(values)

    def look(self) -> None:
        """Count the threads that want a CPU now. The one that counts stands for the event loop's."""
        with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/loadavg") as file:
            self._runnable.append(int(file.read().split()[3].partition("/")[0]))

    def idle(self) -> float:
        """Return the mean number of idle CPUs since the last call."""
        was, self._was = self._was, self._times()
        total = self._was[1] - was[1]
        return (self._was[0] - was[0]) / total * self._count if total > 0 else 0.0

    def fair(self) -> float:
        """Return the mean part of a CPU that a thread of this process would get since the last call."""
        runnable, self._runnable = self._runnable, []
        parts = [min(1.0, self._count / max(1, number)) for number in runnable]
        return sum(parts) / len(parts) if parts else 1.0
