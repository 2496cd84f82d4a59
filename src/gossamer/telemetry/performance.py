"""Measures a crawling process from a thread of its own, and keeps the measurements in a file that others read.

The thread looks at the process ten times a second, whatever the event loop does: so it also sees what blocks the loop,
and where in the code. Each second it appends a line to a file. Fixed: the thread neither waits for the event loop nor
writes to the process's objects.
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
from typing import Protocol, Self

import msgspec

from gossamer.model.performance import (
    Counts,
    MeasuredProcess,
    Measurement,
    Occupancy,
    Recording,
    Waiting,
    largest,
)
from gossamer.telemetry.recordings import RecordingFile

_TICK_SECONDS = 0.1
"""Interval at which the process is looked at. Shorter is more exact and costs more CPU."""
_SLOW_TICKS = 3
"""Every so many ticks the thread also does what costs more: it reads the scheduler's length, and wakes the event
loop."""
_INTERVAL_SECONDS = 1.0
"""Interval of the measurements in the first hour."""
_LINES = 3600
"""Measurements after which a recording is halved: two become one, and the interval doubles. So a file of a long crawl
stays below about 2 MB."""
_STOPPED_SECONDS = 1.0
"""Delay of a tick from which the process counts as stopped meanwhile. A busy disk or host delays a tick by some tenths
of a second."""


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
        self._began = time.monotonic()
        self._current = _Interval(stages, LoopThread(), self._now)
        self._ping = LoopPing(stages.call_soon)
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
        self._current.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def recording(self) -> Recording:
        """Return what was measured so far."""
        return Recording(process=self.process, measurements=list(self.measurements))

    def _now(self) -> float:
        """Return the time in epoch seconds by the clock at the start: it does not jump when the system's clock does."""
        return self.process.started + time.monotonic() - self._began

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
            self._file.close(self._now())

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

    def __init__(self, stages: MeasuredStages, thread: "LoopThread", now: Callable[[], float]) -> None:
        """`now`: returns the time in epoch seconds."""
        self._stages = stages
        self._thread = thread
        self._now = now
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
        self._looked = self._start, self._cpu
        self._own_starved: float | None = None
        self._stopped = 0.0
        self._slow_looks = 0
        self._sums = [0] * len(Occupancy._fields)
        self._waiting_sums = [0, 0, 0, 0]
        self._blocked_in: Counter[str] = Counter()
        self._busy_in: Counter[str] = Counter()

    def close(self) -> None:
        """Close what was opened."""
        self._thread.close()

    @property
    def age(self) -> float:
        """Seconds since the interval began."""
        return time.monotonic() - self._start

    def look(self) -> bool:
        """Look at the process once, and return whether the slow part was due."""
        self._note_stop()
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

    def _note_stop(self) -> None:
        """Count the time since the last look as stopped, if this look came late and the process wanted no CPU."""
        if self._own_starved is None:  # the first look of an interval, in the recorder's thread
            self._own_starved = starved_seconds()
        now, cpu = time.monotonic(), time.process_time()
        late = now - self._looked[0] - _TICK_SECONDS - (cpu - self._looked[1])
        self._looked = now, cpu
        if late > _STOPPED_SECONDS:
            late -= starved_seconds() - self._own_starved + self._thread.starved() - self._starved
            if late > _STOPPED_SECONDS:
                self._stopped += late

    def end(self, ping: "LoopPing") -> Measurement:
        """Return the measurement of this interval, and begin the next one."""
        seconds = self.age
        looks, slow_looks = max(1, self._looks), max(1, self._slow_looks)
        mean = Occupancy._make(each / looks for each in self._sums)
        scheduler, pages, of_requests, empty = (each / slow_looks for each in self._waiting_sums)
        counts = self._stages.counts
        was, self._counts = self._counts, msgspec.structs.replace(counts)  # a copy: the loop goes on counting
        now, (lag, longest_lag) = self._counts, ping.take()
        measurement = Measurement(
            at=round(self._now(), 3),
            seconds=round(seconds, 4),
            scheduler=_short(scheduler),
            downloader=_short(mean.downloader),
            pages=_short(mean.downloader * (min(1.0, pages / of_requests) if of_requests else 1.0)),
            transferring=_short(mean.transferring),
            scraper=_short(mean.scraper),
            pipelines=_short(mean.pipelines),
            held_bytes=_short(mean.held_bytes),
            scheduler_empty=_short(empty),
            downloader_full=_short(mean.is_downloader_full),
            bytes_full=_short(mean.is_bytes_full),
            blocked=_short(self._blocked_in.total() / looks),
            resting=_short(mean.is_resting),
            capped=_short(mean.is_capped),
            sites=_short(mean.sites),
            site_places=_short(mean.site_places),
            browser=_short(mean.browser),
            browser_full=_short(mean.is_browser_full),
            rendered=now.rendered - was.rendered,
            stopped=_short(self._stopped),
            requested=now.requested - was.requested,
            responses=now.responses - was.responses,
            page_responses=now.page_responses - was.page_responses,
            attempts=now.attempts - was.attempts,
            failed=now.failed - was.failed,
            redirected=now.redirected - was.redirected,
            response_seconds=_short(now.response_seconds - was.response_seconds),
            response_bytes=now.response_bytes - was.response_bytes,
            items=now.items - was.items,
            lost_items=now.lost_items - was.lost_items,
            item_seconds=_short(now.item_seconds - was.item_seconds),
            cpu=_short(time.process_time() - self._cpu),
            loop_cpu=_short(self._thread.cpu() - self._loop_cpu),
            starved=_short(max(0.0, self._thread.starved() - self._starved)),
            idle_cpus=_short(self._cpus.idle()),
            fair_cpu=_short(self._cpus.fair()),
            lag=_short(lag),
            longest_lag=_short(longest_lag),
            fastest_response=_short(now.fastest_response),
            fastest_item=_short(now.fastest_item),
            items_in_all=now.items,
            pages_in_all=now.page_responses,
            blocked_in=largest(self._blocked_in),
            busy_in=largest(self._busy_in),
        )
        counts.fastest_response = counts.fastest_item = 0.0
        self._begin()
        return measurement


def _short(number: float) -> float:
    """Return the number with as many digits as are worth keeping."""
    return round(number, 4)


# --- the thread of the event loop -------------------------------------------------------------------------------------

_STILL_SECONDS = 0.0005
"""Time for which a thread that is found inside a callback must not run to count as blocked."""
_SURELY_BUSY = 0.95
"""Share of the time since the last look for which a thread must have used the CPU, so that this wait is not needed to
know that it works."""

_IDLE = frozenset((
    ("runners.py", "run"), ("base_events.py", "run_until_complete"), ("base_events.py", "run_forever"),
    ("asyncioreactor.py", "run"), ("epollreactor.py", "doPoll"), ("selectreactor.py", "doSelect"),
    ("pollreactor.py", "doPoll"),
))  # fmt: skip
"""Functions in which an event loop waits for events: file and name. The loop of uvloop has no frame of its own: the
innermost one is then that of its caller."""
_LIBRARIES = (
    os.path.dirname(os.__file__),
    f"{os.sep}site-packages{os.sep}",
    os.path.dirname(os.path.dirname(__file__)),
)
"""Parts of the paths of files that are not the project's own code: Python's, installed packages', and ours."""


class LoopThread:
    """The thread that runs the event loop: the one that makes this object."""

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._folder = f"/proc/self/task/{threading.get_native_id()}"
        get_clock = getattr(time, "pthread_getcpuclockid", None)  # macOS has none
        self._clock: int | None = get_clock(self._ident) if get_clock else None
        self._looked = 0.0, 0.0
        """CPU seconds of the thread, and time, at the last look."""
        self._files: dict[str, int] = {}
        """Descriptors of open files, by name."""

    def cpu(self) -> float:
        """Return the CPU seconds of the thread; of the process, where the system does not count those of a thread."""
        return time.process_time() if self._clock is None else time.clock_gettime(self._clock)

    def starved(self) -> float:
        """Return the seconds for which the thread could run and had no CPU. 0 where the system does not count them."""
        try:
            return int(self._read("schedstat").split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return 0.0

    def place(self) -> tuple[str, bool]:
        """Return where in the code the thread is, and whether it waits there. Empty: the loop waits for events.

        A thread that could run and gets no CPU does not wait, however long. Where the system does not tell, such a
        thread counts as waiting."""
        used, own, now = self.cpu(), time.thread_time(), time.monotonic()
        share = (used - self._looked[0]) / max(now - self._looked[1], 1e-9)
        self._looked = used, now
        frame = sys._current_frames().get(self._ident)
        if frame is None or _is_idle(frame):
            return "", False
        name = _place(frame)
        if share > _SURELY_BUSY:
            return name, False
        before = self._turns()
        del frame  # keeps the thread's objects alive
        # While this thread waits, the loop's thread can take the interpreter's lock, if it waits for that.
        time.sleep(_STILL_SECONDS)
        if before is not None:
            return name, self._waits() and self._turns() == before
        of_others = 0.0 if self._clock is not None else time.thread_time() - own  # in the CPU of the process
        is_still = self.cpu() - used - of_others < _STILL_SECONDS / 10
        later = sys._current_frames().get(self._ident)
        if later is None or (is_still and _place(later) != name):
            return "", False
        return name, is_still

    def _turns(self) -> int | None:
        """Return how often the thread has got a CPU; None where the system does not tell."""
        try:
            return int(self._read("schedstat").split()[2])
        except (OSError, IndexError, ValueError):
            return None

    def _waits(self) -> bool:
        """Return whether the thread neither runs nor waits for a CPU."""
        try:
            return self._read("stat").rpartition(b")")[2].split(None, 1)[0] in (b"S", b"D")
        except (OSError, IndexError):
            return False

    def _read(self, name: str) -> bytes:
        """Return the content of a file of the thread in `/proc`. It stays open, which makes reading it much cheaper."""
        if name not in self._files:
            self._files[name] = os.open(f"{self._folder}/{name}", os.O_RDONLY)
        return os.pread(self._files[name], 1024, 0)

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])


def starved_seconds() -> float:
    """Return the seconds for which this thread could run and had no CPU. 0: the system does not count them."""
    try:
        with open("/proc/thread-self/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def _is_idle(frame: FrameType) -> bool:
    """Return whether an event loop waits for events here. Blocking code may wait in a selector of its own."""
    name, caller = _file_and_function(frame), frame.f_back
    if name == ("selectors.py", "select"):
        return caller is not None and _file_and_function(caller) == ("base_events.py", "_run_once")
    return name in _IDLE


def _file_and_function(frame: FrameType) -> tuple[str, str]:
    code = frame.f_code
    return code.co_filename.rpartition(os.sep)[2], code.co_name


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


_PINGS = 1000
"""Unanswered pings that are kept, of a loop that stands still. Fewer show a shorter delay then."""


class LoopPing:
    """Measures how long the event loop takes to handle something new."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], None]) -> None:
        self._call_soon = call_soon
        self._sent: list[float] = []
        """Times of the pings that the loop has not answered."""
        self._delays: list[float] = []

    def send(self) -> None:
        """Have the loop answer. It answers several pings at once, but each counts: one that blocks for long would
        otherwise count as seldom as one that blocks for a moment."""
        is_first = not self._sent
        if len(self._sent) < _PINGS:
            self._sent.append(time.monotonic())
        if is_first:
            try:
                self._call_soon(self._answer)
            except RuntimeError:  # the loop is closed
                self._sent = []

    def _answer(self) -> None:
        now = time.monotonic()
        sent, self._sent = self._sent, []
        self._delays += [now - one for one in sent]

    def take(self) -> tuple[float, float]:
        """Return mean and maximum in seconds since the last call."""
        delays, self._delays = self._delays, []
        now = time.monotonic()
        delays = delays + [now - one for one in self._sent]
        return (sum(delays) / len(delays), max(delays)) if delays else (0.0, 0.0)


# --- the machine ------------------------------------------------------------------------------------------------------


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
