"""Recordings: what a process measures of itself, and what others read of it."""

import asyncio
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gossamer.model.performance import Counts, MeasuredProcess, Measurement, Occupancy, StageLimits, Waiting
from gossamer.telemetry import performance, recordings
from gossamer.telemetry.performance import LoopPing, PerformanceRecorder
from gossamer.telemetry.recordings import RecordingFile, is_stopped, process_ticks, read_recording, running_processes

PATIENCE_SECONDS = 60.0
PROCESS = MeasuredProcess(
    name="shop", kind="scrapy", host=os.uname().nodename, pid=os.getpid(), started=7.0, limits=StageLimits(requests=16)
)


class Stages:
    """Stages with fixed numbers."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._loop = asyncio.get_running_loop()

    def occupancy(self) -> Occupancy:
        return Occupancy(16, 12, 3, 2, 5000, True, False, is_capped=True, sites=2, site_places=24)

    def waiting(self) -> Waiting:
        return Waiting(7, 10)

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon_threadsafe(call)


def blocks_the_loop() -> None:
    time.sleep(0.2)


def uses_the_cpu() -> None:
    end = time.thread_time() + 0.1
    while time.thread_time() < end:
        pass


async def measured(work: Callable[[], None], until: Callable[[Measurement], bool], folder: Path) -> Measurement:
    """The first measurement that fulfils the condition, while the loop does this work again and again."""
    stages, seen, done = Stages(), list[Measurement](), threading.Event()

    def look(measurement: Measurement) -> None:
        seen.append(measurement)
        if until(measurement):
            done.set()

    recorder = PerformanceRecorder(PROCESS, stages, folder, on_measurement=look)
    recorder.start()
    end = time.monotonic() + PATIENCE_SECONDS
    while not done.is_set() and time.monotonic() < end:
        work()
        stages.counts.responses += 1
        stages.counts.items += 2
        await asyncio.sleep(0)
    recorder.stop()
    assert done.is_set(), seen
    recording = read_recording(recorder.path) if recorder.path else None
    assert recording is not None
    assert recording.process == PROCESS
    assert recording.ended is not None
    assert recording.measurements == seen
    assert sum(each.items for each in seen) == stages.counts.items == seen[-1].items_in_all
    return next(each for each in seen if until(each))


async def test_blocking_code_is_found_and_its_place_named(tmp_path: Path) -> None:
    one = await measured(blocks_the_loop, lambda seen: seen.blocked > 0.5, tmp_path)
    assert max(one.blocked_in, key=lambda place: one.blocked_in[place]).endswith(" blocks_the_loop")
    assert one.longest_lag > 0.01
    assert one.loop_cpu < one.seconds
    assert (one.scheduler, one.downloader, one.transferring, one.scraper, one.pipelines) == (7, 16, 12, 3, 2)
    assert (one.pages, one.held_bytes, one.downloader_full, one.bytes_full) == (10, 5000, 1, 0)


async def test_a_loop_that_uses_the_cpu_is_not_called_blocked(tmp_path: Path) -> None:
    def is_busy(seen: Measurement) -> bool:
        return any(place.endswith(" uses_the_cpu") for place in seen.busy_in) and seen.loop_cpu > 0.01

    one = await measured(uses_the_cpu, is_busy, tmp_path)
    assert one.blocked < 0.5


BURNERS = 3
"""Processes that compete with the loop for one CPU: it gets a quarter of it."""


@pytest.fixture
def shared_cpu() -> Iterator[set[int]]:
    """The test's thread shares one CPU with processes that always want it; the CPUs that it had are returned."""
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
    try:
        for burner in burners:
            os.sched_setaffinity(burner.pid, one)
        os.sched_setaffinity(0, one)
        yield allowed
    finally:
        os.sched_setaffinity(0, allowed)
        for burner in burners:
            burner.kill()
            burner.wait()


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not tell who gets no CPU")
async def test_a_loop_that_gets_no_cpu_is_not_called_blocked(tmp_path: Path, shared_cpu: set[int]) -> None:
    seen = list[Measurement]()

    def has_seen_enough(one: Measurement) -> bool:  # called in the recorder's thread, which may use all CPUs
        os.sched_setaffinity(0, shared_cpu)
        seen.append(one)
        return len(seen) >= 4 and sum(sum(each.busy_in.values()) for each in seen) >= 10

    await measured(uses_the_cpu, has_seen_enough, tmp_path)
    assert sum(each.starved for each in seen) > 0.1
    looks = [
        sum(sum(places.values()) for places in each)
        for each in zip(*((m.busy_in, m.blocked_in) for m in seen), strict=True)
    ]
    assert looks[1] <= looks[0] / 4  # the thread may wait for a page of memory now and then
    assert sum(each.stopped for each in seen) == 0


def waits_in_a_selector() -> None:
    with selectors.DefaultSelector() as selector:
        selector.select(0.2)


async def test_blocking_code_with_a_selector_of_its_own_is_found(tmp_path: Path) -> None:
    one = await measured(waits_in_a_selector, lambda seen: seen.blocked > 0.5, tmp_path)
    assert max(one.blocked_in, key=lambda place: one.blocked_in[place]).endswith(" waits_in_a_selector")


def blocks_shortly() -> None:
    time.sleep(0.01)


async def test_a_long_stop_of_the_loop_counts_for_as_long_as_it_lasted() -> None:
    loop = asyncio.get_running_loop()
    ping = LoopPing(loop.call_soon_threadsafe)
    for _ in range(10):  # the loop stands still for as long as it takes to send ten
        ping.send()
        blocks_shortly()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    ping.send()  # this one is answered at once
    await asyncio.sleep(0)
    mean, longest = ping.take()
    assert longest >= 0.1
    assert mean >= 0.05


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not tell who gets no CPU")
def test_the_time_for_which_a_process_was_stopped_is_counted(tmp_path: Path) -> None:
    program = (
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.unit.telemetry.test_performance import PROCESS, Stages\n"
        "from gossamer.telemetry.performance import PerformanceRecorder\n"
        "async def main():\n"
        "    recorder = PerformanceRecorder(PROCESS, Stages(), Path(sys.argv[1]))\n"
        "    recorder.start()\n"
        "    print('ready', flush=True)\n"
        "    await asyncio.to_thread(sys.stdin.read)\n"
        "    recorder.stop()\n"
        "asyncio.run(main())\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert running.stdin is not None
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(signal.SIGSTOP)
    while not is_stopped(running.pid):
        time.sleep(0.001)
    began = time.monotonic()
    time.sleep(3)  # what is measured
    ended = time.monotonic()
    running.send_signal(signal.SIGCONT)
    time.sleep(0.3)  # a tick
    running.communicate(timeout=PATIENCE_SECONDS)
    (path,) = recordings.recordings(tmp_path)
    recording = read_recording(path)
    assert recording is not None
    stopped = sum(each.stopped for each in recording.measurements)
    assert ended - began - 0.5 < stopped < sum(each.seconds for each in recording.measurements)


async def test_a_system_without_clocks_of_threads_is_measured_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(time, "pthread_getcpuclockid")
    monkeypatch.setattr(performance.LoopThread, "_turns", lambda thread: None)
    one = await measured(blocks_the_loop, lambda seen: seen.blocked > 0.5, tmp_path)
    assert 0 <= one.loop_cpu < one.seconds


async def test_a_jump_of_the_systems_clock_is_no_jump_of_the_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(10**9, 0, -3600))
    monkeypatch.setattr(performance.time, "time", lambda: float(next(times)))
    monkeypatch.setattr(performance, "_INTERVAL_SECONDS", 0.01)
    enough = threading.Event()
    recorder = PerformanceRecorder(
        PROCESS, Stages(), tmp_path, on_measurement=lambda one: len(recorder.measurements) > 4 and enough.set()
    )
    recorder.start()
    await asyncio.to_thread(enough.wait, PATIENCE_SECONDS)
    recorder.stop()
    monkeypatch.undo()
    assert recorder.path is not None
    recording = read_recording(recorder.path)
    assert recording is not None
    assert recording.ended is not None
    ats = [PROCESS.started, *(each.at for each in recording.measurements), recording.ended]
    assert ats == sorted(ats)
    assert ats[-1] - ats[0] < PATIENCE_SECONDS


async def test_what_is_counted_while_a_measurement_is_made_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, take = Stages(), performance.LoopPing.take

    def count_meanwhile(ping: performance.LoopPing) -> tuple[float, float]:
        stages.counts.items += 1
        return take(ping)

    monkeypatch.setattr(performance.LoopPing, "take", count_meanwhile)
    monkeypatch.setattr(performance, "_INTERVAL_SECONDS", 0.01)
    enough = threading.Event()
    recorder = PerformanceRecorder(
        PROCESS, stages, tmp_path, on_measurement=lambda one: one.items_in_all > 2 and enough.set()
    )
    recorder.start()
    await asyncio.to_thread(enough.wait, PATIENCE_SECONDS)
    recorder.stop()
    assert sum(each.items for each in recorder.measurements) == recorder.measurements[-1].items_in_all


async def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    recorder = PerformanceRecorder(PROCESS, Stages(), tmp_path / "file" / "performance")
    recorder.start()
    recorder.stop()
    assert recorder.path is None
    assert len(recorder.measurements) == 1


async def test_a_long_recording_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(performance, "_LINES", 4)
    monkeypatch.setattr(performance, "_INTERVAL_SECONDS", 0.01)
    lengths, enough = list[int](), threading.Event()
    recorder = PerformanceRecorder(
        PROCESS,
        Stages(),
        tmp_path,
        on_measurement=lambda one: (lengths.append(1), len(lengths) > 9 and enough.set())[0],
    )
    recorder.start()
    await asyncio.to_thread(enough.wait, PATIENCE_SECONDS)
    recorder.stop()
    assert recorder.path is not None
    recording = read_recording(recorder.path)
    assert recording is not None
    assert recording.measurements == recorder.measurements
    assert len(recording.measurements) < 4 <= len(lengths)


def test_the_end_of_a_file_may_be_torn(tmp_path: Path) -> None:
    file = RecordingFile(tmp_path, PROCESS)
    for second in range(5):
        file.append(Measurement(at=float(second), items=second))
    with file.path.open("ab") as torn:
        torn.write(b'{"at":9.0,"ite')
    recording = read_recording(file.path)
    assert recording is not None
    assert [each.items for each in recording.measurements] == [0, 1, 2, 3, 4]
    latest = read_recording(file.path, last=2)
    assert latest is not None
    assert [each.items for each in latest.measurements] == [3, 4]
    (tmp_path / "other.jsonl").write_text("not a recording\n")
    assert read_recording(tmp_path / "other.jsonl") is None
    assert read_recording(tmp_path / "missing.jsonl") is None


def test_processes_that_ended_or_died_do_not_run(tmp_path: Path) -> None:
    def processes() -> list[str]:
        return sorted(one.process.name for one in running_processes(tmp_path, last=1))

    RecordingFile(tmp_path, MeasuredProcess(name="here", kind="scrapy", host=os.uname().nodename, pid=os.getpid()))
    ended = RecordingFile(tmp_path, MeasuredProcess(name="ended", kind="scrapy", host=os.uname().nodename, pid=1))
    ended.close(time.time())
    no_pid = 2**22 + 1  # larger than any
    RecordingFile(tmp_path, MeasuredProcess(name="killed", kind="scrapy", host=os.uname().nodename, pid=no_pid))
    away = RecordingFile(tmp_path, MeasuredProcess(name="away", kind="worker", host="another", pid=1))
    away.append(Measurement(at=time.time()))
    silent = RecordingFile(tmp_path, MeasuredProcess(name="silent", kind="worker", host="yet-another", pid=1))
    silent.append(Measurement(at=time.time()))
    os.utime(silent.path, (time.time() - 3600,) * 2)
    successor = MeasuredProcess(name="id taken over", kind="scrapy", host=os.uname().nodename, pid=os.getpid(), ticks=7)
    RecordingFile(tmp_path, successor)
    own = process_ticks(os.getpid())
    RecordingFile(tmp_path, msgspec.structs.replace(PROCESS, name="this", ticks=own or 0))
    assert processes() == (["away", "here", "this"] if own else ["away", "here", "id taken over", "this"])


def test_a_folder_keeps_the_latest_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_KEPT_FILES", 3)
    for number in range(6):
        file = RecordingFile(tmp_path, MeasuredProcess(name=f"run {number}/x", kind="scrapy", host="h", pid=number))
        os.utime(file.path, (number, number))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"run_{number}_x-h-{number}-0.jsonl" for number in (3, 4, 5)
    ]


@pytest.mark.parametrize(("waits", "place"), [("queue.Queue().get()", "threading.py"), ("mine()", "bin/tool:11 mine")])
def test_the_started_program_is_no_place_in_the_code(tmp_path: Path, waits: str, place: str) -> None:
    program = tmp_path / "bin" / "tool"
    program.parent.mkdir()
    program.write_text(
        "import os, queue, sys, threading, time\n"
        "from gossamer.telemetry.performance import LoopThread\n"
        "loop = LoopThread()\n"
        "def look():\n"
        "    main = threading.main_thread().ident\n"
        "    while (caller := sys._current_frames()[main].f_back) is None or caller.f_code.co_name != 'get':\n"
        "        time.sleep(0.01)\n"
        "    print(loop.place()[0], flush=True)\n"
        "    os._exit(0)\n"
        "def mine():\n"
        "    queue.Queue().get()\n"
        "threading.Thread(target=look).start()\n"
        f"{waits}\n"
    )
    shown = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert place in shown
    assert "<module>" not in shown


def test_a_recording_of_any_size_is_read_with_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "_MEASUREMENTS_READ", 100)
    file = RecordingFile(tmp_path, PROCESS)
    lines = [msgspec.json.encode(Measurement(at=float(number), items=1, downloader=4.0)) for number in range(1, 1001)]
    with file.path.open("ab") as written:
        written.write(b"x" * 100_000 + b"\n" + b"\n".join(lines) + b"\n")
    recording = read_recording(file.path)
    assert recording is not None
    assert len(recording.measurements) <= 100
    assert sum(each.items for each in recording.measurements) == 1000
    assert sum(each.seconds for each in recording.measurements) == pytest.approx(1000)
    assert {each.downloader for each in recording.measurements} == {4.0}
