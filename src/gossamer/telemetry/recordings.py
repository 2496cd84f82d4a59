"""Files in which crawling processes keep their measurements: one of JSON lines for each process, and lines of a log.

The first line is the process, each other one a measurement; the last one is the end, unless the process was killed.
Fixed: FOLDER and the form of the lines, because commands of another release read them; a reader must take a file that
is being written or replaced. A log is read by its own headings, so columns may be added and moved; their names are
fixed.
"""

import contextlib
import math
import os
import re
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from gossamer.model.performance import MeasuredProcess, Measurement, MeasurementList, Recording, StageLimits

FOLDER = "performance"
"""Folder of the recordings in the data directory."""

_KEPT_FILES = 50
"""Recordings of ended processes that a folder keeps."""
_FIRST_SILENCE = 10.0
"""Seconds in which a process on another machine writes its first measurement, or counts as gone."""


class RecordingFile:
    """File of JSON lines: the process, its measurements, and the end. A file that cannot be written is given up."""

    def __init__(self, folder: Path, process: MeasuredProcess) -> None:
        self.path = folder / f"{_file_name(process.name)}-{process.host}-{process.pid}-{int(process.started)}.jsonl"
        self._head = msgspec.json.encode(process) + b"\n"
        self.works = True
        """False after an error; nothing more is written then."""
        with self._giving_up():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _delete_old(folder)
            self.path.write_bytes(self._head)

    @contextlib.contextmanager
    def _giving_up(self) -> Iterator[None]:
        try:
            yield
        except OSError:
            self.works = False

    def append(self, measurement: Measurement) -> None:
        """Add a measurement."""
        self._write(msgspec.json.encode(measurement) + b"\n")

    def close(self, ended: float) -> None:
        """Add the time of the end."""
        self._write(msgspec.json.encode({"ended": round(ended, 3)}) + b"\n")

    def _write(self, line: bytes) -> None:
        if self.works:
            with self._giving_up(), self.path.open("ab") as file:
                file.write(line)

    def rewrite(self, measurements: list[Measurement]) -> None:
        """Replace all measurements."""
        if self.works:
            with self._giving_up():
                temporary = self.path.with_suffix(".new")
                temporary.write_bytes(self._head + b"".join(msgspec.json.encode(each) + b"\n" for each in measurements))
                temporary.replace(self.path)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)[:64]


def _delete_old(folder: Path) -> None:
    """Delete the oldest recordings of a folder."""
    for path in recordings(folder)[_KEPT_FILES - 1 :]:
        path.unlink(missing_ok=True)


_LONGEST_LINE = 8192
"""Bytes that a line takes at most. A longer one is left out. If a measurement took more than a quarter, too few of the
latest would be read."""


class _End(msgspec.Struct):
    ended: float


_decode_process = msgspec.json.Decoder(MeasuredProcess).decode
_decode_measurement = msgspec.json.Decoder(Measurement).decode


def read_recording(path: Path, *, last: int | None = None) -> Recording | None:
    """Return the recording in a file; None if there is none (yet). `last`: only so many of the latest measurements.

    Lines that are incomplete, because the process was killed, are left out. The memory is bounded, however large the
    file is: measurements of a very large one are merged."""
    ended: float | None = None
    measurements = MeasurementList(_MEASUREMENTS_READ)
    try:
        with path.open("rb") as file:
            process = _decode_process(file.readline(_LONGEST_LINE))
            if last is not None:
                file.seek(max(file.tell(), path.stat().st_size - (last + 2) * _LONGEST_LINE // 4))
            while line := file.readline(_LONGEST_LINE):
                with contextlib.suppress(ValueError):
                    if line.startswith(b'{"ended"'):
                        ended = msgspec.json.decode(line, type=_End).ended
                    else:
                        measurements.add(_decode_measurement(line))
            measurements.flush()
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None
    kept = measurements.all[-last:] if last is not None else measurements.all
    return Recording(process=process, measurements=kept, ended=ended, source=str(path))


_MEASUREMENTS_READ = 10_000
"""Measurements that are read from a file before they are merged. Must be larger than what a process keeps in one."""


def recordings(folder: Path) -> list[Path]:
    """Return the files of a folder, the latest first."""
    times: dict[Path, float] = {}
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):  # another process has deleted it meanwhile
            times[path] = path.stat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)


def running_processes(folder: Path, *, last: int) -> list[Recording]:
    """Return the recordings of the processes that run, with so many of their latest measurements."""
    found = (read_recording(path, last=last) for path in recordings(folder))
    return [one for one in found if one is not None and is_running(one)]


def is_running(recording: Recording) -> bool:
    """Return whether the process of a recording runs. One on another machine does if its file was written lately."""
    process = recording.process
    if recording.ended is not None:
        return False
    if process.host == os.uname().nodename:
        ticks = process_ticks(process.pid)
        return ticks is not None and (ticks == process.ticks or not (ticks and process.ticks))
    latest = recording.measurements[-1] if recording.measurements else None
    return silent_seconds(recording) < (_SILENT_INTERVALS * latest.seconds if latest else _FIRST_SILENCE)


def this_process(
    name: str, kind: str, limits: StageLimits, knobs: dict[str, int | float | str | bool] | None = None
) -> MeasuredProcess:
    """Return the identity of this process, which begins a crawl now. `knobs`: options of a benchmark."""
    return MeasuredProcess(
        name=name,
        kind=kind,
        host=os.uname().nodename,
        pid=os.getpid(),
        started=round(time.time(), 3),
        limits=limits,
        cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        ticks=process_ticks(os.getpid()) or 0,
        knobs=knobs or {},
    )


def silent_seconds(recording: Recording) -> float:
    """Return the seconds since the process of a recording wrote to its file."""
    try:
        return max(0.0, time.time() - Path(recording.source).stat().st_mtime)
    except OSError:
        return 0.0


def process_ticks(pid: int) -> int | None:
    """Return the start of a process of this machine, in the system's own unit; 0: the system does not tell. None: there
    is no such process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except (PermissionError, OverflowError):  # it is another user's; or no id at all
        pass
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[_START_FIELD])
    except (OSError, IndexError, ValueError):
        return 0


_START_FIELD = 19
"""Place of the start in `/proc/PID/stat` behind the name; set by Linux, must not change."""


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine was stopped by a signal or a debugger. False also: the system does not
    tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


_SILENT_INTERVALS = 10
"""Intervals without a measurement after which a process on another machine counts as gone."""


# --- the lines of a log -----------------------------------------------------------------------------------------------

COLUMNS = (
    "scheduler downloader  scraper pipelines     done      bytes |  items/s pages/s latency in_pipe   cpu blocked    "
    "lag | starved idle_cpus  fair pages sent empty dl_full bytes_full fastest fastest_item resp resp_s received "
    "left failed moved stopped all_cpu rests capped sites places browser tabs_full rendered    pid seconds           at"
)
"""Headings of the rows. The first six are the stages, as the queues of a crawl; the middle is for people; the rest is
for `gossamer diagnose`."""

LOG_MARK = b"Performance: "
"""Part of each line of the performance view, by which the others of a log are skipped."""
_LINE = re.compile(r"Performance: (.*)$")
_LIMITS = re.compile(r"(\w+)=([^\s]+)")
_ROWS_KEPT = 5000
"""Rows of a run that are kept before two become one: a log may be of any size."""
_RUNS_KEPT = 20
"""Runs of a log that are kept, the latest of them."""


def log_limits(process: MeasuredProcess) -> str:
    """Return the line of the log with the limits of a process. It precedes its rows, and is repeated now and then."""
    limits = process.limits
    return (
        f"limits requests={limits.requests} site_requests={limits.site_requests} items={limits.items} "
        f"bytes={limits.bytes} delay={limits.delay:g} throttled={limits.throttled:d} shared={limits.shared:d} "
        f"tabs={limits.tabs} cpus={process.cpus} pid={process.pid} started={process.started:.3f} "
        f"spider={'_'.join(process.name.split())}"
    )


def log_row(one: Measurement, pid: int = 0) -> str:
    """Return a row of the log under COLUMNS. Times are in seconds, shares in percent."""
    seconds = one.seconds
    return (
        f"{one.scheduler:9.0f} {one.downloader:10.1f} {one.scraper:8.1f} {one.pipelines:9.1f} {one.items_in_all:8d} "
        f"{one.held_bytes:10.0f} | {one.items / seconds:8.1f} {one.page_responses / seconds:7.1f} {one.latency:7.3f} "
        f"{one.pipeline_seconds:7.3f} {one.loop_cpu / seconds:5.0%} {one.blocked:7.0%} {one.lag:6.3f} | "
        f"{one.starved / seconds:7.0%} {one.idle_cpus:9.1f} {one.fair_cpu:5.2f} {one.pages:5.1f} "
        f"{one.transferring:4.1f} {one.scheduler_empty:5.0%} {one.downloader_full:7.0%} {one.bytes_full:10.0%} "
        f"{one.fastest_response:7.3f} {one.fastest_item:12.3f} "
        f"{one.responses / seconds:4.1f} {one.response_seconds:6.2f} {one.response_bytes:8d} "
        f"{one.attempts:4d} {one.failed:6d} {one.redirected:5d} {one.stopped:7.1f} {one.cpu / seconds:7.0%} "
        f"{one.resting:5.0%} {one.capped:6.0%} {one.sites:5.1f} {one.site_places:6.1f} "
        f"{one.browser:7.1f} {one.browser_full:9.0%} {one.rendered:8d} "
        f"{pid:6d} {seconds:7.3f} {one.at:12.2f}"
    )


class LogRuns(NamedTuple):
    """Runs that a log has lines of."""

    runs: list[Recording]
    """In the order of their latest rows: the last one is diagnosed."""
    unreadable: int
    """Lines that could not be read: they are incomplete, or have other columns than the headings."""


def read_log(lines: Iterable[str], *, seconds: float, name: str) -> LogRuns:
    """Return the runs in the lines of a log. The memory that this takes does not depend on their number.

    `seconds`: interval of rows that do not have it. `name`: name of runs whose limits are not in the log."""
    headings = COLUMNS.replace("|", " ").split()  # a log that was cut may have rows before its first headings
    runs: dict[tuple[int, str], _LoggedRun] = {}
    latest: _LoggedRun | None = None
    unreadable = 0
    for line in lines:
        found = _LINE.search(line)
        if found is None:
            continue
        text = found[1].replace("|", " ")
        words = text.split()
        if words[:1] == ["limits"]:
            limits = dict(_LIMITS.findall(text))
            key = _number(limits, "pid"), limits.get("started", str(len(runs)) if "pid" not in limits else "")
            # Rows of a process whose limits came later than its first rows are its own.
            run = runs.pop(key, None) or runs.pop((key[0], ""), None) or _LoggedRun()
            run.process = _process(limits, name)
            runs[key] = latest = run
            runs = dict(list(runs.items())[-_RUNS_KEPT:])
        elif words[:1] == ["scheduler"]:
            headings = words
        elif row := _values(headings, words):
            pid = int(row.get("pid", 0))
            if latest is None or ("pid" in row and latest.process_id != pid):
                key = next((one for one in reversed(runs) if one[0] == pid and "pid" in row), (pid, ""))
                latest = runs.pop(key, None) or _LoggedRun(MeasuredProcess(name=name, kind="scrapy", pid=pid))
                runs[key] = latest
            latest.add(row, seconds)
        elif words and _is_number(words[0]):
            unreadable += 1
    return LogRuns([run.recording() for run in runs.values() if run.has_rows], unreadable)


class _LoggedRun:
    """Rows of a process, of which a bounded number is kept."""

    def __init__(self, process: MeasuredProcess | None = None) -> None:
        self.process = process or MeasuredProcess(name="", kind="scrapy")
        self.has_rows = False
        self._measurements = MeasurementList(_ROWS_KEPT)
        self._before: Measurement | None = None

    @property
    def process_id(self) -> int:
        """Id of the process."""
        return self.process.pid

    def add(self, row: dict[str, float], seconds: float) -> None:
        """Add a row. `seconds`: its interval, if it has none."""
        self._before = _measurement(row, self._before, seconds)
        self._measurements.add(self._before)
        self.has_rows = True

    def recording(self) -> Recording:
        """Return what was logged. The end is that of the last row."""
        self._measurements.flush()
        measurements = self._measurements.all
        return Recording(process=self.process, measurements=measurements, ended=measurements[-1].at)


def _number(limits: dict[str, str], key: str) -> int:
    """Return a whole number of the line of limits; 0: it has none, or something else."""
    try:
        return int(float(limits.get(key, "0")))
    except (ValueError, OverflowError):
        return 0


def _process(limits: dict[str, str], name: str) -> MeasuredProcess:
    try:
        delay, started = float(limits.get("delay", 0)), float(limits.get("started", 0))
    except ValueError:
        delay = started = 0.0
    return MeasuredProcess(
        name=limits.get("spider", name),
        kind="scrapy",
        pid=_number(limits, "pid"),
        started=started,
        cpus=_number(limits, "cpus") or 1,
        limits=StageLimits(
            requests=_number(limits, "requests"),
            site_requests=_number(limits, "site_requests"),
            items=_number(limits, "items"),
            bytes=_number(limits, "bytes"),
            delay=delay,
            throttled=bool(_number(limits, "throttled")),
            shared=bool(_number(limits, "shared")),
            tabs=_number(limits, "tabs"),
        ),
    )


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _values(headings: list[str], words: list[str]) -> dict[str, float]:
    """Return the numbers of a row by heading; empty: it is no row."""
    if not headings or len(words) != len(headings):
        return {}
    try:
        numbers = [float(word.rstrip("%")) / (100 if word.endswith("%") else 1) for word in words]
    except ValueError:
        return {}
    return dict(zip(headings, numbers, strict=True)) if all(map(math.isfinite, numbers)) else {}


def _measurement(row: dict[str, float], before: Measurement | None, seconds: float) -> Measurement:
    """Return the measurement that a row was made of, with the digits that the row has."""
    get = row.get
    seconds = max(0.001, get("seconds", seconds))
    pages = round(get("pages/s", 0.0) * seconds)
    return Measurement(
        at=get("at", (before.at if before else 0.0) + seconds),
        seconds=seconds,
        scheduler=get("scheduler", 0.0),
        downloader=get("downloader", 0.0),
        pages=get("pages", get("downloader", 0.0)),
        transferring=get("sent", get("downloader", 0.0)),
        scraper=get("scraper", 0.0),
        pipelines=get("pipelines", 0.0),
        held_bytes=get("bytes", 0.0),
        scheduler_empty=get("empty", 0.0),
        downloader_full=get("dl_full", 0.0),
        bytes_full=get("bytes_full", 0.0),
        blocked=get("blocked", 0.0),
        resting=get("rests", 0.0),
        capped=get("capped", 0.0),
        sites=get("sites", 0.0),
        site_places=get("places", 0.0),
        browser=get("browser", 0.0),
        browser_full=get("tabs_full", 0.0),
        rendered=int(get("rendered", 0)),
        requested=pages,
        page_responses=pages,
        responses=round(get("resp", get("pages/s", 0.0)) * seconds),
        attempts=int(get("left", 0)),
        failed=int(get("failed", 0)),
        redirected=int(get("moved", 0)),
        stopped=get("stopped", 0.0),
        response_seconds=get("resp_s", 0.0),
        response_bytes=int(get("received", 0)),
        items=round(get("items/s", 0.0) * seconds),
        loop_cpu=get("cpu", 0.0) * seconds,
        cpu=get("all_cpu", get("cpu", 0.0)) * seconds,
        starved=get("starved", 0.0) * seconds,
        idle_cpus=get("idle_cpus", 0.0),
        fair_cpu=get("fair", 1.0),
        lag=get("lag", 0.0),
        longest_lag=get("lag", 0.0),
        fastest_response=get("fastest", 0.0),
        fastest_item=get("fastest_item", 0.0),
        items_in_all=int(get("done", 0)),
        pages_in_all=(before.pages_in_all if before else 0) + pages,
    )
