"""An output that is read and removed while it is written, so that a long crawl does not fill the disk."""

import fcntl
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

_EVERY_SECONDS = 0.5


class _Line(msgspec.Struct):
    url: str
    success: bool
    reason: str


class Emptied:
    """Looks after one file of JSON Lines. After the block every record has been counted and the file is gone.

    A sink makes a file that was moved away anew, and its lock says when nobody writes to the moved one any more.
    A moved file is deleted only when the next one is moved: a sink that finds neither takes its records for lost.
    """

    def __init__(self, path: Path, *, at_bytes: int = 64 * 2**20) -> None:
        self.path = path
        self.records = 0
        self.bytes = 0
        self.urls: set[str] = set()
        """Of the pages that were fetched."""
        self.failures: list[str] = []
        """`url: reason` of the others."""
        self._at_bytes = at_bytes
        self._aside: Path | None = None
        """The file that was moved away last."""
        self._moved = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._decoder = msgspec.json.Decoder(_Line)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
        self._empty(1)
        if self._aside is not None:
            self._aside.unlink()

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            self._empty(self._at_bytes)

    def _empty(self, at_bytes: int) -> None:
        if not self.path.exists() or self.path.stat().st_size < at_bytes:
            return
        read, aside = self._aside, self.path.with_name(f"{self.path.name}.{self._moved}")
        self._moved += 1
        self.path.rename(aside)
        self._aside = aside
        with aside.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            for text in file:
                line = self._decoder.decode(text)
                self.records += 1
                self.bytes += len(text)
                if line.success:
                    self.urls.add(line.url)
                else:
                    self.failures.append(f"{line.url}: {line.reason}")
        if read is not None:
            read.unlink()
