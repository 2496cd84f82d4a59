"""Records back from a file of JSON Lines, in any compression."""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.frames import Frames


class _Kind(msgspec.Struct):
    type: str


_kind = msgspec.json.Decoder(_Kind)
_page = msgspec.json.Decoder(PageRecord)
_item = msgspec.json.Decoder(ItemRecord)


def read_records(path: Path | str) -> Iterator[PageRecord | ItemRecord]:
    """Every record of the file, in order; memory stays small. What the bytes begin with tells the compression.

    `BadInput`: the file is torn (its writer was killed and nobody has written since), or a line is no record of ours.
    """
    path = Path(path)
    try:
        with open_lines(path) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield decode_line(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                    raise BadInput(f"{path}, line {number}: {exc}") from exc
    except (OSError, EOFError, zstandard.ZstdError) as exc:
        raise BadInput(f"{path}: {exc}") from exc


def decode_line(line: bytes) -> PageRecord | ItemRecord:
    """The record of one line; raises `msgspec.DecodeError` or its kin."""
    return _item.decode(line) if _kind.decode(line).type == "item" else _page.decode(line)


def open_lines(path: Path) -> BinaryIO:
    """The decompressed bytes of the file. `EOFError`, here or while reading, if it is torn."""
    stream = path.open("rb")
    magic = stream.read(4)
    stream.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        stream.close()
        return cast(BinaryIO, gzip.open(path, "rb"))
    if magic == b"\x28\xb5\x2f\xfd" or magic[1:] == b"\x2a\x4d\x18":
        size = path.stat().st_size
        # The library takes a torn frame for the end of the file, and says nothing.
        if Frames().tail(stream.fileno(), 0, size, doubt=False).end < size:
            stream.close()
            raise EOFError("the last frame is torn")
        decompressed = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, decompressed), 1 << 20))
    return stream
