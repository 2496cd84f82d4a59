"""Facts that each process of a service reports about itself: version, memory, lag of its event loop, a diagnosis.

Fixed: the names of the fields, which processes of two versions share.
"""

import os
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from gossamer import __version__
from gossamer.model.performance import Measurement, Recording

_STATM: Final = Path("/proc/self/statm")
_MEASUREMENTS: Final = 120
"""Latest measurements of which a worker is diagnosed. With more, an earlier state counts for longer."""
_DIAGNOSIS_SECONDS: Final = 30.0
"""Time for which a diagnosis is kept: making one takes milliseconds."""


_IDLE: Final = "no request waits"


class ProcessFacts(msgspec.Struct, omit_defaults=True):
    """Facts about one process."""

    name: str = ""
    """Name of its worker at the frontier. Empty: it has none."""
    roles: Sequence[str] = ()
    """Kinds of services that it runs, by Scrapy Cluster's names."""
    version: str = __version__
    python: str = ""
    started: float = 0.0
    """Epoch seconds."""
    memory_bytes: int = 0
    cpu: float = 0.0
    """Cores that it used in the last interval; for a service, since its start."""
    lag_seconds: float = 0.0
    """Time until its event loop handles something new."""
    pages_per_second: float = 0.0
    finding: str = ""
    """Clause that says what limits it, as `gossamer diagnose` does. Empty: not known."""
    advice: str = ""


def memory_bytes() -> int:
    """Return the memory that this process uses; where the system does not tell, the most that it has used."""
    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


class OwnFacts:
    """Facts about this process, as they are now."""

    def __init__(self, *, name: str = "", roles: Sequence[str] = ()) -> None:
        self._facts = ProcessFacts(name=name, roles=roles, python=sys.version.split()[0], started=time.time())
        self._began = time.monotonic()
        self._diagnosed_at = float("-inf")

    def of_service(self, lag_seconds: float) -> dict[str, Any]:
        """Return the facts about a process that runs services."""
        times = os.times()
        self._facts.cpu = (times.user + times.system) / max(time.monotonic() - self._began, 1.0)
        self._facts.lag_seconds = lag_seconds
        self._facts.memory_bytes = memory_bytes()
        return self._fields()

    def of_worker(self, recording: Recording | None) -> dict[str, Any]:
        """Return the facts about a worker. `recording`: its measurements; None: it is starting."""
        self._facts.memory_bytes = memory_bytes()
        if recording is not None and recording.measurements:
            last = recording.measurements[-1]
            self._facts.cpu, self._facts.lag_seconds = last.cpu / last.seconds, last.lag
            self._facts.pages_per_second = last.page_responses / last.seconds
            if _is_idle(last):
                self._facts.finding, self._facts.advice = _IDLE, ""
                self._diagnosed_at = float("-inf")
            else:
                self._diagnose(recording)
        return self._fields()

    def _fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(self._facts)
        return fields

    def _diagnose(self, recording: Recording) -> None:
        now = time.monotonic()
        if now - self._diagnosed_at < _DIAGNOSIS_SECONDS:
            return
        from gossamer.policy.diagnosis import diagnose  # imported late: a worker starts without it

        self._diagnosed_at = now
        latest: list[Measurement] = recording.measurements[-_MEASUREMENTS:]
        finding = diagnose(msgspec.structs.replace(recording, measurements=latest))
        self._facts.finding = finding.summary if finding else ""
        self._facts.advice = finding.advice.text if finding else ""


def _is_idle(last: Measurement) -> bool:
    """Return whether a worker had no request in an interval, and none that waited for its turn."""
    waits = last.scheduler or last.resting or last.capped
    return not (waits or last.attempts or last.downloader or last.scraper or last.pipelines or last.browser)


_decode = msgspec.json.Decoder(ProcessFacts).decode


def read_facts(text: bytes) -> ProcessFacts | None:
    """Return facts that were reported as JSON. None: another version has reported them in another form."""
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
