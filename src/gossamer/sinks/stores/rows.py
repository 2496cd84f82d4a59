"""Rows of the tables that stores and SQLite files have, and the interface of a store.

Fixed: the names of tables and key columns, which readers use.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple, Protocol

from gossamer.model.csv_rows import OTHER_FIELDS
from gossamer.model.json_codec import to_json_types
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.tables import PAGE_URL, item_fields

Row = dict[str, Any]
"""Values by column. A value is what JSON can represent, or an object that has a text."""

ColumnKind = Literal["key", "text", "integer", "number", "boolean", "time", "json"]
"""Kinds of the columns of a new table. key: a text that may be indexed; number: an integer or a fraction."""

PAGE_FIELDS = tuple(name for name in PageRecord.__struct_fields__ if name != "type")
"""Columns of pages: the fields of their records, in which lists and objects are JSON."""
ITEM_KEYS = ("_request_id", "_position")
"""First columns of items, which are their key. Fixed: tables of earlier versions have them."""
ITEM_ORIGIN = ("_appid", "_crawlid", "_spiderid", "_attempt", "_timestamp", "_attrs")
"""Columns with the other fields of an item's record. The underscore keeps them apart from the fields of items. More may
be added: an existing table gets them."""
_KINDS: Final[dict[str, ColumnKind]] = {
    "request_id": "key",
    **dict.fromkeys(("attempt", "depth", "status_code"), "integer"),
    **dict.fromkeys(("success", "truncated"), "boolean"),
    **dict.fromkeys(("response_headers", "request_headers", "links", "redirects", "timings", "attrs"), "json"),
    **dict.fromkeys(("content", "rendering", "refusal"), "json"),
    "timestamp": "time",
}
"""Kinds of the columns that hold no plain text, by name. Must not change: existing tables have them."""


def page_row(record: PageRecord) -> Row:
    """Return the values of a page by column."""
    row = {name: getattr(record, name) for name in PAGE_FIELDS}
    row["request_id"] = record.request_id or None  # NULL, as a key, replaces no other row
    return row


def item_row(record: ItemRecord, position: int) -> Row:
    """Return the values of an item by column: its key, where it comes from, its fields. Fields with the name of one of
    the first columns go into OTHER_FIELDS."""
    origin = {"_request_id": record.request_id or None, "_position": position}
    origin |= {name: getattr(record, name[1:]) for name in ITEM_ORIGIN}
    fields = with_text_names(item_fields(record))
    if not fields.keys().isdisjoint(origin):
        others = {name: fields.pop(name) for name in origin if name in fields}
        fields[OTHER_FIELDS] = others | ({OTHER_FIELDS: fields[OTHER_FIELDS]} if OTHER_FIELDS in fields else {})
    return origin | fields


_TEXT: Final = frozenset({str})


def with_text_names(row: dict[Any, Any]) -> Row:
    """Return a row whose names are text: a spider may name a field by a number."""
    return row if _TEXT.issuperset(map(type, row)) else {str(name): value for name, value in row.items()}


def rows_of_items(records: Iterable[ItemRecord]) -> list[Row]:
    """Return the rows of items, of which those of one page follow each other."""
    rows: list[Row] = []
    request_id: str | None = None
    position = 0
    for record in records:
        position = position + 1 if record.request_id == request_id and request_id else 0
        request_id = record.request_id
        rows.append(item_row(record, position))
    return rows


@dataclass(frozen=True, slots=True)
class StoreTable:
    """A table of a store, or an index, that is to be filled."""

    name: str
    key: tuple[str, ...]
    """Columns by whose values a row replaces the row before it. A row that lacks one of them is refused, unless
    `parent` is set or the key is a page's."""
    columns: Mapping[str, ColumnKind] = field(default_factory=dict)
    """Columns that a new table begins with; others are added when a row has them."""
    parent: str = ""
    """Column whose value names a group of rows: the rows of a group in one batch replace all its rows in the store.
    Empty: there are no groups."""
    crawl: str = ""
    """Column with the name of the crawl. Empty: there is none."""
    may_lack_key: bool = False
    """True: a row without a value for the key is added, and replaces none."""


def pages_table(name: str, key: tuple[str, ...]) -> StoreTable:
    """Return the table of pages. `name` empty: `pages`; `key` empty: the request."""
    columns: dict[str, ColumnKind] = {one: _KINDS.get(one, "text") for one in PAGE_FIELDS}
    columns |= dict.fromkeys(key, "key")
    return StoreTable(name or "pages", key or ("request_id",), columns, crawl="crawlid", may_lack_key=not key)


def items_table(name: str, key: tuple[str, ...]) -> StoreTable:
    """Return the table of items. `name` empty: `items`; `key` empty: the request and the number of the item in it."""
    columns: dict[str, ColumnKind] = {"_request_id": "key", "_position": "integer", PAGE_URL: "text"}
    columns |= {one: _KINDS.get(one[1:], "text") for one in ITEM_ORIGIN}
    columns |= dict.fromkeys(key, "key")
    parent = "" if key else ITEM_KEYS[0]
    return StoreTable(name or "items", key or ITEM_KEYS, columns, parent, "_crawlid", may_lack_key=not key)


def group_sizes(table: StoreTable, rows: Iterable[Row]) -> dict[str, int]:
    """Return, by group of these rows (see `StoreTable.parent`), the position after its last one. In a store, rows from
    there on are those of an earlier fetch that found more."""
    sizes: dict[str, int] = {}
    for row in rows:
        if parent := row.get(table.parent):
            sizes[parent] = max(sizes.get(parent, 0), row["_position"] + 1)
    return sizes


class RefusedRow(NamedTuple):
    """A row that a store will never take."""

    row: Row
    field: str
    """Column whose value does not fit. Empty: the store does not say."""
    reason: str


class Store(Protocol):
    """A connection to a store. Blocking, for one thread. It connects when needed, and again after an error.

    Raises SinkFull or SinkError when the store is away or cannot take rows now: the same rows may then be written
    again, and replace those of them that were written.
    """

    def prepare(self, table: StoreTable) -> None:
        """Make the table if there is none, and check that rows can be written to it. Raises BadInput if it has no such
        key, or SinkError."""

    def write(self, table: StoreTable, rows: Sequence[Row]) -> list[RefusedRow]:
        """Write rows, of which a later one replaces an earlier one with its key, and return when they are durable.

        Returns the rows that do not fit the table, the same objects; the others are written."""

    def delete_crawl(self, table: StoreTable, crawl_id: str) -> None:
        """Delete the rows of a crawl, if there is such a table."""

    def close(self) -> None:
        """Disconnect. Never raises; may be repeated."""


def is_not_finite(value: object) -> bool:
    """Return whether a value is NaN or an infinity: they are no values of keys, because JSON and SQL have none."""
    if isinstance(value, Decimal):
        return not value.is_finite()
    return isinstance(value, float) and not math.isfinite(value)


def key_text(value: object) -> str:
    """Return the text of a value of a key."""
    return str(to_json_types(value)) if isinstance(value, int) else str(value)


def split_keyless(table: StoreTable, rows: Sequence[Row]) -> tuple[list[Row], list[RefusedRow]]:
    """Return the rows to write and those that lack a key. Of rows with the same key, only the last one is written."""
    if len(table.key) == 1:  # nearly all batches: each row has a text of its own as its key
        [name] = table.key
        keys = [row.get(name) for row in rows]
        if set(map(type, keys)) == {str} and len(unique := set(keys)) == len(keys) and "" not in unique:
            return list(rows), []
    by_key: dict[tuple[str, ...], Row] = {}
    keyless: list[Row] = []
    refused: list[RefusedRow] = []
    for row in rows:
        lacking = next((name for name in table.key if row.get(name) in (None, "")), None)
        endless = next((name for name in table.key if is_not_finite(row.get(name))), None)
        if endless is not None:
            refused.append(RefusedRow(row, endless, f"{row[endless]} is not a finite number, and no value of a key"))
        elif lacking is None:
            key = tuple(key_text(row[name]) for name in table.key)
            by_key.pop(key, None)
            by_key[key] = row
        elif table.may_lack_key:
            keyless.append(row)
        else:
            refused.append(RefusedRow(row, lacking, "it has no value, and is the key of the table"))
    return [*by_key.values(), *keyless], refused
