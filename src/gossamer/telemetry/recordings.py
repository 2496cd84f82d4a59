"""Files in which crawling processes keep their measurements: one of JSON lines for each process.

The first line is the process, each other one a measurement; the last one is the end, unless the process was killed.
Safe to change: the numbers below. Fixed: FOLDER and the form of the lines, because commands of another release read
them; a reader must take a file that is being written or replaced.
"""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gossamer.model.performance import MeasuredProcess, Measurement, Recording

FOLDER = "performance"
"""Folder of the recordings in the data directory."""

_KEPT_FILES = 50
"""Recordings of ended processes that a folder keeps. May be changed freely."""
_FIRST_SILENCE = 10.0
"""Seconds in which a process on another machine writes its first measurement, or counts as gone. May be changed."""


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


_LONGEST_LINE = 2048
"""Bytes that a measurement takes at most. If one took more, the latest would be read incomplete and left out."""


class _End(msgspec.Struct):
    ended: float


_decode_process = msgspec.json.Decoder(MeasuredProcess).decode
_decode_measurement = msgspec.json.Decoder(Measurement).decode


def read_recording(path: Path, *, last: int | None = None) -> Recording | None:
    """Return the recording in a file; None if there is none (yet). `last`: only so many of the latest measurements.

    Lines that are incomplete, because the process was killed, are left out."""
    try:
        with path.open("rb") as file:
            process = _decode_process(file.readline())
            if last is not None:
                file.seek(max(file.tell(), path.stat().st_size - (last + 2) * _LONGEST_LINE))
            lines = file.read().splitlines()
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return None
    ended: float | None = None
    measurements: list[Measurement] = []
    for line in lines if last is None else lines[-last - 1 :]:
        with contextlib.suppress(ValueError):
            if line.startswith(b'{"ended"'):
                ended = msgspec.json.decode(line, type=_End).ended
            else:
                measurements.append(_decode_measurement(line))
    return Recording(process=process, measurements=measurements, ended=ended, source=str(path))


def recordings(folder: Path) -> list[Path]:
    """Return the files of a folder, the latest first."""
    times: dict[Path, float] = {}
    for path in folder.glob("*.jsonl"):
        with contextlib.suppress(OSError):  # another process has deleted it meanwhile
            times[path] = path.stat().st_mtime
    return sorted(times, key=times.__getitem__, reverse=True)


def running_processes(folder: Path, *, last: int) -> list[Recording]:
    """Return the recordings of the processes that run, with so many of their latest measurements."""
    here, now = os.uname().nodename, time.time()
    found = (read_recording(path, last=last) for path in recordings(folder))
    return [one for one in found if one is not None and _is_running(one, here=here, now=now)]


def _is_running(recording: Recording, *, here: str, now: float) -> bool:
    """Return whether the process of a recording runs. `here`: the name of this machine."""
    if recording.ended is not None:
        return False
    if recording.process.host == here:
        try:
            os.kill(recording.process.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it is another user's
            return True
        return True
    latest = recording.measurements[-1] if recording.measurements else None
    since = latest.at if latest else recording.process.started
    return now - since < (_SILENT_INTERVALS * latest.seconds if latest else _FIRST_SILENCE)


_SILENT_INTERVALS = 10
"""Intervals without a measurement after which a process on another machine counts as gone. May be changed freely."""
