"""Records as JSON lines: whatever a page or a spider put into them, a line comes out."""

import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.framing import ZstdFrames

_DEEPEST = 100

_REFUSED = (TypeError, ValueError, OverflowError, RecursionError)  # a lone surrogate raises a kind of ValueError

_encoder = msgspec.json.Encoder()


def json_units(outputs: Sequence[Output]) -> list[bytes]:
    """The batch as one unit of lines: compressed together, it is smallest."""
    return [encode_lines([output.record for output in outputs])]


def encode_lines(records: Sequence[PageRecord | ItemRecord]) -> bytes:
    """One line of JSON a record, each ending in a newline; UTF-8, and no raw newline or NUL within a line.

    Never raises for what is in a record: see `plain`. NaN and the infinities become null.
    """
    try:
        return _encoder.encode_lines(records)
    except _REFUSED:
        return b"".join(encode_value(record) + b"\n" for record in records)


def encode_value(value: object) -> bytes:
    """JSON of anything, without a line break; never raises for what is in it."""
    try:
        return _encoder.encode(value)
    except _REFUSED:
        return _encoder.encode(plain(value))


def plain(value: object, depth: int = 0) -> object:
    """What JSON can say of `value`: half surrogate pairs become U+FFFD, keys and unknown objects their text.

    Only for records that cannot be encoded as they are; deeper than 100 levels a value is cut to its text.
    """
    if isinstance(value, str):
        # Through UTF-16, so that two halves that belong together become the character they stand for.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(plain(str(key))): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    try:
        return msgspec.to_builtins(value)  # dates, decimals, bytes, enumerations
    except _REFUSED:
        return plain(str(value))


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
        if ZstdFrames().tail(stream.fileno(), 0, size, doubt=False).end < size:
            stream.close()
            raise EOFError("the last frame is torn")
        decompressed = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, decompressed), 1 << 20))
    return stream
