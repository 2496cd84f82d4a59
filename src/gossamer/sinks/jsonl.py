"""JSON Lines: a record a line, as it is, gzipped or zstandard-compressed."""

from collections.abc import Sequence
from pathlib import Path

from gossamer.model.record import Output
from gossamer.sinks.append import AppendFile
from gossamer.sinks.encode import encode_lines
from gossamer.sinks.framing import Framing
from gossamer.sinks.thread import SinkThread


class JsonLinesSink:
    """Appends to one file that other processes may append to as well. A batch is one unit of the framing."""

    wants_wire = False

    def __init__(self, path: Path, framing: Framing) -> None:
        self.path = path
        self._file = AppendFile(path, framing)
        self._thread = SinkThread("sink-jsonl")

    async def write(self, outputs: Sequence[Output]) -> None:
        if outputs:
            await self._thread.run(lambda: self._append(outputs))

    async def close(self) -> None:
        await self._thread.run(self._file.close)

    def _append(self, outputs: Sequence[Output]) -> None:
        self._file.append([encode_lines([output.record for output in outputs])])
