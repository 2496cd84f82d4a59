"""Recordings: what a process measures of itself, and what others read of it."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gossamer.model.performance import MeasuredProcess, Measurement, StageLimits
from gossamer.telemetry import performance, recordings
from gossamer.telemetry.performance import Counts, Occupancy, PerformanceRecorder, Waiting
from gossamer.telemetry.recordings import RecordingFile, read_recording, running_processes

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
        return Occupancy(16, 12, 3, 2, 5000, True, False)

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
    # A thread that gets no CPU stands still as well; where the system does not tell, an interval with one is awaited.
    def is_busy(seen: Measurement) -> bool:
        return bool(seen.busy_in) and seen.loop_cpu > 0.01 and seen.blocked < 0.5

    one = await measured(uses_the_cpu, is_busy, tmp_path)
    assert any(place.endswith(" uses_the_cpu") for place in one.busy_in)


async def test_what_is_counted_while_a_measurement_is_made_is_counted_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages, take = Stages(), performance._LoopPing.take

    def count_meanwhile(ping: performance._LoopPing) -> tuple[float, float]:
        stages.counts.items += 1
        return take(ping)

    monkeypatch.setattr(performance._LoopPing, "take", count_meanwhile)
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
    silent.append(Measurement(at=time.time() - 3600))
    assert processes() == ["away", "here"]


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
        "from gossamer.telemetry.performance import _LoopThread\n"
        "loop = _LoopThread()\n"
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
