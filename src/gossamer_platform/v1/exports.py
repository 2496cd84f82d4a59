"""Writes the items of a job as JSON Lines, CSV, JSON or XML, in pieces, so that the memory needed is constant.

Waits for the disk or the network: take the pieces in a thread. Fixed: the formats' names and the shapes of what they
write.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from gossamer.model.csv_rows import add_columns, csv_row, with_others
from gossamer.model.json_codec import encode_value
from gossamer_platform.v1.item_filter import ItemFilter
from gossamer_platform.v1.items import ItemReader

_PIECE_BYTES: Final = 64 * 1024
"""Length from which a piece is sent. A piece takes one step of a thread."""
_PIECE_PARTS: Final = 2000
"""Number of items after which a piece ends, however short it is."""
_NOT_IN_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document may contain, not even escaped."""


class ItemSelection(NamedTuple):
    """Items of a job that are exported."""

    reader: ItemReader
    start: int = 0
    """Number of the first one."""
    limit: int | None = None
    """Largest number of items. None: all."""
    filters: Sequence[ItemFilter] = ()
    csv_guard: bool = False
    """True: no cell of a CSV file can be a formula of a spreadsheet."""

    def items(self) -> Iterator[Any]:
        """Yield the items."""
        position, number = self.reader.position(self.start)
        left = self.limit
        if number < self.start or left == 0:
            return
        for found in self.reader.items(position, number, self.filters):
            yield found.item
            if left is not None:
                left -= 1
                if left == 0:
                    return

    def raw(self) -> Iterator[bytes] | None:
        """Yield the lines of all items as they were written. None: only some items are wanted."""
        if self.start or self.limit is not None or self.filters:
            return None
        return (line.content for line in self.reader.lines() if line.content)


def export(form: str, selection: ItemSelection) -> Iterator[bytes]:
    """Yield the items in one of the formats in `EXPORTS`, in pieces; close the reader at the end."""
    try:
        piece: list[bytes] = []
        size = 0
        for part in _WRITERS[form](selection):
            piece.append(part)
            size += len(part)
            if size >= _PIECE_BYTES or len(piece) == _PIECE_PARTS:
                yield b"".join(piece)
                piece, size = [], 0
        yield b"".join(piece)
    finally:
        selection.reader.close()


def _as_json_lines(selection: ItemSelection) -> Iterator[bytes]:
    raw = selection.raw()
    if raw is not None:
        for line in raw:
            yield line + b"\n"
        return
    for item in selection.items():
        yield encode_value(item) + b"\n"


def _as_json(selection: ItemSelection) -> Iterator[bytes]:
    yield b"["
    for number, item in enumerate(selection.items()):
        yield (b",\n" if number else b"\n") + encode_value(item)
    yield b"\n]\n"


def _as_csv(selection: ItemSelection) -> Iterator[bytes]:
    """Write one column for each field that any item has, in the order in which they occur first, and one for all others
    if there are too many."""
    columns: dict[str, None] = {}
    for item in selection.items():
        if not add_columns(columns, _fields(item)):
            break
        yield b""  # so that a piece ends after some items here, too
    yield csv_row(list(columns), guard=selection.csv_guard)
    for item in selection.items():
        fields = with_others(_fields(item), columns)
        yield csv_row([fields.get(name) for name in columns], guard=selection.csv_guard)


def _fields(item: Any) -> dict[str, Any]:
    return item if isinstance(item, dict) else {"value": item}


def _as_xml(selection: ItemSelection) -> Iterator[bytes]:
    yield b'<?xml version="1.0" encoding="utf-8"?>\n<items>\n'
    for item in selection.items():
        fields = "".join(
            f"<field name={_attribute(name)}>{_xml(value)}</field>" for name, value in _fields(item).items()
        )
        yield f"<item>{fields}</item>\n".encode()
    yield b"</items>\n"


def _attribute(name: str) -> str:
    return quoteattr(_NOT_IN_XML.sub("\ufffd", name))


def _xml(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"<value>{_xml(part)}</value>" for part in value)
    if isinstance(value, dict):
        return "".join(f"<field name={_attribute(name)}>{_xml(part)}</field>" for name, part in value.items())
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value)
    return escape(_NOT_IN_XML.sub("\ufffd", text))


_WRITERS: Final[Mapping[str, Callable[[ItemSelection], Iterator[bytes]]]] = {
    "jsonl": _as_json_lines,
    "json": _as_json,
    "csv": _as_csv,
    "xml": _as_xml,
}
EXPORTS: Final[Mapping[str, str]] = {
    "jsonl": "application/jsonl",
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "xml": "application/xml",
}
"""Media type of each format."""
