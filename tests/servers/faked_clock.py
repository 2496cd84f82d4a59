"""A wall clock that can be set while a process runs, by libfaketime; its monotonic clock is the machine's."""

import os
from pathlib import Path

_LIBRARIES = sorted(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))


class FakedClock:
    """The clock of a process that is started with `environment`. One object for each process."""

    library = str(_LIBRARIES[0]) if _LIBRARIES else ""
    """Empty: libfaketime is not installed, and no clock can be faked."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self.set(0.0)

    @property
    def environment(self) -> dict[str, str]:
        """Variables to add."""
        return {
            "LD_PRELOAD": self.library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, seconds: float) -> None:
        """From now on the clock is so far ahead of the machine's (negative: behind)."""
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+.3f}")
        os.replace(new, self._file)  # it is read all the time
