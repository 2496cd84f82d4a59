"""JSON of messages and records: encoding, which never fails for what a page, a spider or a job put into them, and
strict decoding.

Fixed: what is encoded is UTF-8 without a raw newline, and has no NaN; and what is decoded is JSON as RFC 8259 defines
it: UTF-8, without NaN and halves of surrogate pairs.
"""

from collections.abc import Sequence
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

_DEEPEST = 100
"""Levels of nesting; a deeper value is replaced by `"..."`. Smaller values lose more of a record; a much larger one
reaches the recursion limit of Python."""

_ENCODING_ERRORS = (TypeError, ValueError, OverflowError, RecursionError)
"""Errors that msgspec raises for a value that it cannot encode. ValueError covers the UnicodeEncodeError of a lone
surrogate. None may be removed: the functions below promise not to raise."""

_LARGEST_BITS = 14_000
"""Bits of an integer from which it becomes a hexadecimal text. Must be below 4,300 decimal digits, the most that Python
writes and reads."""

_encoder = msgspec.json.Encoder()
_decode_any = msgspec.json.Decoder().decode


class InvalidJson(ValueError):
    """A text is no JSON. The reason is the rest of a sentence: `is not UTF-8`."""


class UnexpectedJson(ValueError):
    """A text is JSON, but not of the expected type. `place`: where in the value, such as `.jobs[0].id`; empty: the
    whole."""

    def __init__(self, reason: str, place: str) -> None:
        super().__init__(reason)
        self.place = place


@overload
def decode(content: bytes) -> Any: ...


@overload
def decode(content: bytes, kind: type[T]) -> T: ...


def decode(content: bytes, kind: Any = None) -> Any:
    """Return the value in JSON. `kind`: type that it must have. Raises InvalidJson or UnexpectedJson."""
    try:
        return _decode_any(content) if kind is None else msgspec.json.decode(content, type=kind, dec_hook=_made)
    except UnicodeDecodeError as error:
        raise InvalidJson(f"is not UTF-8: {error.reason}") from None
    except RecursionError:
        raise InvalidJson("is nested too many levels deep") from None
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$")
        raise UnexpectedJson(reason, place.removesuffix("`")) from None
    except msgspec.DecodeError as error:
        raise InvalidJson(f"is not JSON: {str(error).removeprefix('JSON is malformed: ')}") from None


def _made(kind: Any, value: Any) -> Any:
    """Return a value of a type that JSON does not have, such as a path."""
    return kind(value)


def encode_lines(records: Sequence[object]) -> bytes:
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
    """Return a value that JSON can represent: lone surrogates become U+FFFD; keys, unknown objects and integers of
    thousands of digits become text.

    For records that cannot be encoded as they are. `depth`: levels of nesting above the value.
    """
    if isinstance(value, str):
        # UTF-16, because two surrogates that form a pair then become their character; lone ones are replaced.
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _LARGEST_BITS else hex(value)
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
