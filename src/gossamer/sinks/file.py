"""A sink that appends to one local file."""

from collections.abc import Callable, Sequence
from pathlib import Path

from gossamer.model.record import Output
from gossamer.sinks.append import AppendFile
from gossamer.sinks.kinds import Kind
from gossamer.sinks.ledger import Ledger
from gossamer.sinks.thread import SinkThread

Missing = Callable[[str, int], None]
"""Told of an output from which so many records vanished that were durable in it."""


class FileSink:
    """Appends each batch to one file, which other processes may append to as well; durable when `write` returns.

    A file that was renamed is followed by a new one. Where it was deleted or cut, `on_missing` is told so, and writing
    goes on.
    """

    def __init__(
        self, path: Path, kind: Kind, *, ledger: Ledger | None = None, on_missing: Missing | None = None
    ) -> None:
        self.path = path
        self.wants_wire = kind.wants_wire
        self._encode = kind.encode
        self._file = AppendFile(path, kind.framing(), kind.head, ledger=ledger)
        self._thread = SinkThread("sink-file")
        self._on_missing = on_missing

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            try:
                await self._thread.run(lambda: self._file.append(self._encode(outputs), records=len(outputs)))
            finally:
                self._tell()

    async def verify(self) -> None:
        """Tell `on_missing` now of what vanished."""
        await self._thread.run(self._file.verify)
        self._tell()

    async def close(self) -> None:
        try:
            await self.verify()
        finally:
            await self._thread.run(self._file.close)

    def _tell(self) -> None:
        while self._file.missing:
            missing = self._file.missing.popleft()
            if self._on_missing is not None:
                self._on_missing(str(self.path), missing)
