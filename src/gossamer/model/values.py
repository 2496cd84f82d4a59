"""Converts the values in Scrapy requests to MessagePack and back, for storage in the frontier (the store of requests).

They come back with the same type and value, except that a date with a time keeps of its zone only the offset from UTC.
Types without a MessagePack form (tuples, sets, dates, decimals, large integers) become extensions: a code, and the
value in a simpler form. Stored requests hold both, so no code may change its number or its form. A new type may be
added: the next code (at the end of the list of codes, whose `range` grows by one), with a line in `_TO_SIMPLE` and one
in `_FROM_SIMPLE`. Texts of errors may change freely.
"""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

_ATOMS = frozenset({type(None), bool, float, bytes})
"""Types that MessagePack stores as they are, in every size."""
_MIN_INT, _MAX_INT = -(2**63), 2**64 - 1
"""Smallest and largest integer of MessagePack: fixed."""
_DEEPEST = 100
"""Levels of nesting in a value. May be smaller, or somewhat larger: encoding and decoding recurse, and Python ends a
recursion of about 1,000 calls."""

# Codes, from 0. ITEM (6) has no line in the two tables: `scrapy.entries` stores a dataclass or a Scrapy item under it.
_TUPLE, _SET, _FROZENSET, _DATETIME, _DATE, _DECIMAL, ITEM, _BIG = range(8)
_TO_SIMPLE: dict[type, tuple[int, Callable[[Any], Any]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, list),
    frozenset: (_FROZENSET, list),
    datetime.datetime: (_DATETIME, datetime.datetime.isoformat),
    datetime.date: (_DATE, datetime.date.isoformat),
    Decimal: (_DECIMAL, str),
}
"""Code of each type, and the function that returns the simpler form of a value."""
_FROM_SIMPLE: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _DATETIME: datetime.datetime.fromisoformat,
    _DATE: datetime.date.fromisoformat,
    _DECIMAL: Decimal,
    _BIG: int,
}
"""Inverse functions, by code."""

_encoder = msgspec.msgpack.Encoder()

Other = Callable[[Any, str, int], Any]
"""Type of the parameter `other` of `to_packable`."""


def encode(fields: dict[str, Any]) -> bytes:
    """Return fields that `to_packable` made as MessagePack."""
    return _encoder.encode(fields)


def to_packable(value: Any, where: str, depth: int = 0, *, other: Other | None = None) -> Any:
    """Return a value in types that MessagePack distinguishes. Raises ValueError for one that cannot be stored.

    `where` names the value in the error. `other(value, where, depth)` converts types that are unknown here; it returns
    None for types that it does not know either. The type must match exactly: a subclass would come back as its base.
    """
    kind = type(value)
    if kind is str:
        return _text(value, where)
    if kind in _ATOMS:
        return value
    if depth > _DEEPEST:
        raise ValueError(f"{where} is too deep, or holds itself")
    if kind is int:
        return value if _MIN_INT <= value <= _MAX_INT else extended(_BIG, str(value))
    if kind is list:
        return [to_packable(one, where, depth + 1, other=other) for one in value]
    if kind is dict:
        return {
            _key(key, where): to_packable(one, f"{where}[{key!r}]", depth + 1, other=other)
            for key, one in value.items()
        }
    if kind in _TO_SIMPLE:
        code, simplify = _TO_SIMPLE[kind]
        return extended(code, to_packable(simplify(value), where, depth + 1, other=other))
    found = other(value, where, depth) if other is not None else None
    if found is None:
        raise ValueError(
            f"{where} holds a {kind.__module__}.{kind.__qualname__}; only numbers, text, bytes, dates, lists, tuples, "
            "sets, dicts, dataclasses and Scrapy items can be stored"
        )
    return found


def _text(value: str, where: str) -> str:
    """Return a text if it can be encoded. Raises ValueError."""
    # A lone surrogate, which JSON can contain, is a character in Python that no encoding has.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds half of a surrogate pair: {value!r}") from None
    return value


def _key(key: Any, where: str) -> Any:
    """Return the key of a dict if MessagePack can store it as one. Raises ValueError."""
    if type(key) is str:
        return _text(key, where)
    if type(key) is int and not _MIN_INT <= key <= _MAX_INT:
        raise ValueError(f"{where} has a key of more than 64 bits; make it text")
    if type(key) in (int, bytes, float, bool, type(None)):
        return key
    raise ValueError(f"{where} has a key of type {type(key).__qualname__}; make it text or a number")


def extended(code: int, value: Any) -> msgspec.msgpack.Ext:
    """Return a value as an extension with this code."""
    return msgspec.msgpack.Ext(code, _encoder.encode(value))


def decode(data: bytes, *, item: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Return the fields that were given to `encode`. Raises ValueError for other bytes.

    `item` converts values with the code ITEM; without it, such values raise ValueError.
    """

    def extension(code: int, inner: memoryview) -> Any:
        value = msgspec.msgpack.decode(inner, ext_hook=extension)
        convert = item if code == ITEM else _FROM_SIMPLE.get(code)
        if convert is None:
            raise ValueError(f"extension {code} is not known")
        try:
            return convert(value)
        except (ArithmeticError, LookupError, TypeError, ValueError) as fault:  # Decimal's is an ArithmeticError
            raise ValueError(f"extension {code} has a value of another form: {fault}") from None

    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any], ext_hook=extension)
    except msgspec.DecodeError as fault:
        raise ValueError(str(fault)) from None
