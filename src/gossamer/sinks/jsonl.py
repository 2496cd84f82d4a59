"""Records as JSON lines: whatever a page or a spider put into them, a line comes out."""

from collections.abc import Sequence

import msgspec

from gossamer.model.record import ItemRecord, Output, PageRecord

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
