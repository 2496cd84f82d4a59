"""Records as JSON Lines: encoding, which never fails for what a page or a spider put into a record, and reading.

Fixed: one record a line, without a raw newline or NUL, by which the end of a torn file is found; and that encoding
never raises for contents, because a batch with such a record could never be written. Safe to change: the replacements
for what JSON cannot represent.
"""

import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
import zstandard

from gossamer.errors import BadInput
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.framing import GZIP_MAGIC, ZSTD_MAGIC, ZSTD_SKIPPABLE_MAGIC_REST, ZstdFrames

_DEEPEST = 100
"""Levels of nesting; a deeper value is replaced by `"..."`. Smaller values lose more of a record; a much larger one
reaches the recursion limit of Python."""

_ENCODING_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors that msgspec raises for a value that it cannot encode. ValueError covers the UnicodeEncodeError of a lone
surrogate. None may be removed: the functions below promise not to raise."""

_BUFFER_BYTES = 1 << 20
"""Bytes that are decompressed ahead while a file is read. Free to change."""

_encoder = msgspec.json.Encoder()


def json_units(outputs: Sequence[Output]) -> list[bytes]:
    """Return the lines of all records of the batch as a single unit, because one large unit compresses best."""
    return [encode_lines([output.record for output in outputs])]


def encode_lines(records: Sequence[PageRecord | ItemRecord]) -> bytes:
    """Return one line of JSON for each record, in UTF-8, with a newline at its end and no raw newline or NUL in it.

    Never raises for the contents of a record: see `to_json_types`. NaN and the infinities become null.
    """
    try:
        return _encoder.encode_lines(records)
    except _ENCODING_ERRORS:
        return b"".join(encode_value(record) + b"\n" for record in records)


def encode_value(value: object) -> bytes:
    """Return the JSON of any value, without a line break. Never raises for its contents."""
    try:
        return _encoder.encode(value)
    except _ENCODING_ERRORS:
        return _encoder.encode(to_json_types(value))


def to_json_types(value: object, depth: int = 0) -> object:
    """Return a value that JSON can represent: lone surrogates become U+FFFD; keys and unknown objects become text.

    For records that cannot be encoded as they are.
    """
    if isinstance(value, str):
        # By way of UTF-16, so that two surrogates that form a pair become their character.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, msgspec.Struct):
        return {name: to_json_types(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if isinstance(value, dict):
        return {str(to_json_types(_text_of(key))): to_json_types(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json_types(item, depth + 1) for item in value]
    try:
        plain = msgspec.to_builtins(value)  # dates, decimals, bytes, enumerations, dataclasses
    except _ENCODING_ERRORS:
        plain = _text_of(value)
    # Enumerations and dataclasses may hold lone surrogates, which to_builtins leaves as they are.
    return to_json_types(plain, depth)


def _text_of(value: object) -> str:
    """Return the object's text, or the name of its type where `__str__` raises."""
    try:
        return str(value)
    except Exception:
        return f"<{type(value).__name__}>"


class _Kind(msgspec.Struct):
    """The field of a record that tells items from pages."""

    type: str


_kind = msgspec.json.Decoder(_Kind)
_page = msgspec.json.Decoder(PageRecord)
_item = msgspec.json.Decoder(ItemRecord)


def read_records(path: Path | str) -> Iterator[PageRecord | ItemRecord]:
    """Yield the records of a file in order, in little memory. The compression is detected from the first bytes.

    Raises `BadInput` when the file cannot be read or decompressed, when it has a torn tail (its writer was killed, and
    no later writer has repaired the file), and when a line is not a record.
    """
    path = Path(path)
    try:
        with open_lines(path) as stream:
            for number, line in enumerate(stream, 1):
                try:
                    yield decode_line(line)
                except (msgspec.MsgspecError, UnicodeDecodeError) as exc:
                    raise BadInput(f"{path}, line {number}: {exc}") from exc
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as exc:
        raise BadInput(f"{path}: {exc}") from exc


def decode_line(line: bytes) -> PageRecord | ItemRecord:
    """Return the record of a line. Raises `msgspec.MsgspecError` or UnicodeDecodeError."""
    return _item.decode(line) if _kind.decode(line).type == "item" else _page.decode(line)


def open_lines(path: Path) -> BinaryIO:
    """Return a stream of the file's decompressed bytes. Raises `EOFError`, here or while reading, for a torn file."""
    stream = path.open("rb")
    magic = stream.read(4)
    stream.seek(0)
    if magic.startswith(GZIP_MAGIC):
        stream.close()
        return cast(BinaryIO, gzip.open(path, "rb"))
    if magic == ZSTD_MAGIC or magic[1:] == ZSTD_SKIPPABLE_MAGIC_REST:
        size = path.stat().st_size
        # The library treats a torn frame as the end of the file, without an error.
        if ZstdFrames().tail(stream.fileno(), 0, size, verify=False).end < size:
            stream.close()
            raise EOFError("the last frame is torn")
        decompressed = zstandard.ZstdDecompressor().stream_reader(stream, read_across_frames=True, closefd=True)
        return cast(BinaryIO, io.BufferedReader(cast(io.RawIOBase, decompressed), _BUFFER_BYTES))
    return stream
