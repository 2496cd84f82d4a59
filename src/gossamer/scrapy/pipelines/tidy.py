"""Item pipeline that makes values storable: dates as ISO text, numbers as numbers, sets as lists.

Fixed: the name of the class, and the form of each type of value, which projects store. More types may be added.
"""

import base64
import datetime
import decimal
import enum
import math
import uuid
from collections.abc import Mapping, Set
from pathlib import PurePath
from typing import Any, Final

from itemadapter import ItemAdapter

_TEXT_TYPES: Final = (datetime.date, datetime.time, uuid.UUID, PurePath)
"""Types whose text is stored. `datetime.datetime` is a date, too."""
_DEPTH: Final = 50
"""Depth to which values are looked into. Deeper ones become text, so that an item that contains itself ends."""


class TidyPipeline:
    """Replaces values of an item that stores and feeds cannot keep: `ITEM_PIPELINES = {"…TidyPipeline": 100}`.

    Dates and times become ISO text, durations seconds, decimals numbers, sets, tuples and generators' lists lists,
    bytes text (Base64 if they are not UTF-8), and `nan` and infinities None. The rest stays as it is.
    """

    def process_item(self, item: Any) -> Any:
        """Return the same item, with its values replaced. May be repeated."""
        adapter = ItemAdapter(item)
        for name, value in list(adapter.items()):
            tidied = tidy(value)
            if tidied is not value:
                adapter[name] = tidied
        return item


def tidy(value: Any, depth: int = 0) -> Any:
    """Return a storable form of the value: text, number, bool, None, or a list or dictionary of those.

    A list or dictionary that is storable already is returned itself. Values of unknown types become text.
    """
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, enum.Enum):
        return tidy(value.value, depth + 1)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return _number(value)
    if isinstance(value, _TEXT_TYPES):
        return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, bytes | bytearray | memoryview):
        return _text(bytes(value))
    if depth < _DEPTH:
        if isinstance(value, list | tuple | Set):
            return _list(value, depth)
        if isinstance(value, Mapping):
            return _dictionary(value, depth)
        if ItemAdapter.is_item(value):
            return _dictionary(ItemAdapter(value), depth)
    return value if isinstance(value, str | int) else str(value)


def _number(value: decimal.Decimal) -> int | float | None:
    if not value.is_finite():
        return None
    return int(value) if value == value.to_integral_value() and abs(value) < 2**53 else float(value)


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()


def _list(value: Any, depth: int) -> list[Any]:
    tidied = [tidy(one, depth + 1) for one in value]
    if isinstance(value, Set):
        # Sets have another order in each process.
        tidied.sort(key=lambda one: (str(type(one)), str(one)))
    unchanged = type(value) is list and all(a is b for a, b in zip(tidied, value, strict=True))
    return value if unchanged else tidied


def _dictionary(value: Any, depth: int) -> dict[str, Any]:
    tidied = {name if isinstance(name, str) else str(tidy(name)): tidy(one, depth + 1) for name, one in value.items()}
    unchanged = type(value) is dict and all(name in value and value[name] is one for name, one in tidied.items())
    return value if unchanged else tidied
