"""Python values as MessagePack and back, exactly: what it has no form for (tuples, sets, dates, decimals) travels as an
extension."""

import datetime
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec

_ATOMS = frozenset({type(None), bool, float, bytes})
_DEEPEST = 100

_TUPLE, _SET, _FROZENSET, _DATETIME, _DATE, _DECIMAL, ITEM, _BIG = range(8)
_FORMS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    tuple: (_TUPLE, list),
    set: (_SET, list),
    frozenset: (_FROZENSET, list),
    datetime.datetime: (_DATETIME, datetime.datetime.isoformat),
    datetime.date: (_DATE, datetime.date.isoformat),
    Decimal: (_DECIMAL, str),
}
_BACK: dict[int, Callable[[Any], Any]] = {
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _DATETIME: datetime.datetime.fromisoformat,
    _DATE: datetime.date.fromisoformat,
    _DECIMAL: Decimal,
    _BIG: int,
}

_encoder = msgspec.msgpack.Encoder()

Other = Callable[[Any, str, int], Any]


def encode(fields: dict[str, Any]) -> bytes:
    """What `plain` made, as bytes."""
    return _encoder.encode(fields)


def to_packable(value: Any, where: str, depth: int = 0, *, other: Other | None = None) -> Any:
    """The same in types that MessagePack keeps apart. Raises ValueError, whose words say what cannot travel.

    `where` names the value in those words; `other(value, where, depth)` gives the form of a type that is not known
    here, None where it does not know it either."""
    kind = type(value)
    if kind is str:
        return _text(value, where)
    if kind in _ATOMS:
        return value
    if depth > _DEEPEST:
        raise ValueError(f"{where} is too deep, or holds itself")
    if kind is int:
        return value if -(2**63) <= value < 2**64 else extended(_BIG, str(value))
    if kind is list:
        return [to_packable(one, where, depth + 1, other=other) for one in value]
    if kind is dict:
        return {
            _key(key, where): to_packable(one, f"{where}[{key!r}]", depth + 1, other=other)
            for key, one in value.items()
        }
    if kind in _FORMS:
        code, form = _FORMS[kind]
        return extended(code, to_packable(form(value), where, depth + 1, other=other))
    found = other(value, where, depth) if other is not None else None
    if found is None:
        raise ValueError(
            f"{where} holds a {kind.__module__}.{kind.__qualname__}; only numbers, text, bytes, dates, lists, tuples, "
            "sets, dicts, dataclasses and Scrapy items travel"
        )
    return found


def _text(value: str, where: str) -> str:
    # Half of a surrogate pair, as JSON can spell it, is a character to Python and to no encoding.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{where} holds half of a surrogate pair: {value!r}") from None
    return value


def _key(key: Any, where: str) -> Any:
    if type(key) is str:
        return _text(key, where)
    if type(key) in (int, bytes, float, bool, type(None)):
        return key
    raise ValueError(f"{where} has a key of type {type(key).__qualname__}; make it text or a number")


def extended(code: int, value: Any) -> msgspec.msgpack.Ext:
    """A value under a code of its own."""
    return msgspec.msgpack.Ext(code, _encoder.encode(value))


def decode(data: bytes, *, item: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """What `encode` was given; `item` makes what travelled under ITEM. Raises ValueError for bytes of another make."""

    def extension(code: int, inner: memoryview) -> Any:
        value = msgspec.msgpack.decode(inner, ext_hook=extension)
        if code == ITEM and item is not None:
            return item(value)
        try:
            return _BACK[code](value)
        except KeyError:
            raise ValueError(f"extension {code} is not known") from None

    try:
        return msgspec.msgpack.decode(data, type=dict[str, Any], ext_hook=extension)
    except msgspec.DecodeError as fault:
        raise ValueError(str(fault)) from None
