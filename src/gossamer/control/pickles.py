"""Reads pickles that hold plain data, and no others: no code ever runs, and none is imported, for what is in one."""

import datetime
import decimal
import io
import pickle
from collections import OrderedDict
from typing import Any, Final

from gossamer.errors import BadInput

MOST_BYTES = 16 * 2**20

_TYPES: Final[dict[tuple[str, str], Any]] = {
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "complex"): complex,
    ("collections", "OrderedDict"): OrderedDict,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "date"): datetime.date,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    # Of the rules of a CrawlSpider: text that knows what it stood in. str is all that is left of it in a pickle.
    ("lxml.etree", "_ElementUnicodeResult"): str,
    ("_codecs", "encode"): lambda text, name: _latin(text, name),
}
"""All that a pickle may name. Each only makes a value of what it is given."""


class BadPickle(BadInput):
    """This pickle cannot be read."""

    only_detail = False


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _TYPES[module.replace("__builtin__", "builtins"), name]
        except KeyError:
            raise BadPickle(f"it names {module}.{name}, which is no plain data") from None

    def persistent_load(self, pid: Any) -> Any:
        raise BadPickle("it refers to something outside")


def loads(data: bytes) -> Any:
    """The value. Raises BadPickle, with the reason, for whatever is not plain data."""
    if len(data) > MOST_BYTES:
        raise BadPickle(f"it has {len(data):,} bytes; at most {MOST_BYTES:,} are read")
    try:
        return _Plain(io.BytesIO(data)).load()
    except BadPickle:
        raise
    except Exception as fault:
        raise BadPickle(f"{type(fault).__name__}: {fault}") from None


def _latin(text: Any, name: Any) -> bytes:
    # How bytes travel in pickles of protocol 2 and older.
    if not isinstance(text, str) or name != "latin1":
        raise BadPickle("it names _codecs.encode for something else than bytes")
    return text.encode("latin1")
