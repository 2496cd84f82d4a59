"""A sink that appends to one local file."""

from collections.abc import Sequence
from pathlib import Path

from gossamer.model.record import Output
from gossamer.sinks.append import AppendFile
from gossamer.sinks.kinds import Kind
from gossamer.sinks.thread import SinkThread


class FileSink:
    """Appends each batch to one file, which other processes may append to as well; durable when `write` returns."""

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path = path
        self.wants_wire = kind.wants_wire
        self._encode = kind.encode
        self._file = AppendFile(path, kind.framing(), kind.head)
        self._thread = SinkThread("sink-file")

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._file.append(self._encode(outputs)))

    async def close(self) -> None:
        await self._thread.run(self._file.close)
