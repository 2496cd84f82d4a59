"""Sink that writes records to a store, and the file of the rows that the store refused.

A store that is away makes `write` raise SinkError, so the crawl waits, within its bounds. A row that does not fit its
table is no reason to wait: it goes to a file, with the field, the value and the reason.

Fixed: the fields of the file of refused rows, which people read; some may be added.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from gossamer.errors import BadInput, SinkError
from gossamer.extras import install_advice
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.append import AppendFile
from gossamer.sinks.base import SinkThread
from gossamer.sinks.framing import PlainLines
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import (
    RefusedRow,
    Store,
    StoreTable,
    items_table,
    page_row,
    pages_table,
    rows_of_items,
)

StoredKind = Literal["pages", "items", "all"]

OnRefused = Callable[[str, int], None]
"""Callback `on_refused(sentence, rows)`: a store refused this number of rows, which are in a file now."""

_VALUE_CHARACTERS: Final = 60
"""Characters of a refused value that a message shows."""
_DRIVERS: Final = {"postgresql": "psycopg", "mysql": "PyMySQL", "opensearch": "opensearch-py", "redis": "redis"}


def open_store(address: StoreAddress) -> Store:
    """Return a store, which is not connected yet. Raises BadInput if its driver is not installed."""
    try:
        if address.kind == "postgresql":
            from gossamer.sinks.stores.postgresql import PostgreSqlStore

            return PostgreSqlStore(address)
        if address.kind == "mysql":
            from gossamer.sinks.stores.mysql import MySqlStore

            return MySqlStore(address)
        if address.kind == "redis":
            from gossamer.sinks.stores.redis import RedisStore

            return RedisStore(address)
        from gossamer.sinks.stores.opensearch import OpenSearchStore

        return OpenSearchStore(address)
    except ImportError as error:
        raise BadInput(
            f"the output {address} needs {_DRIVERS[address.kind]}: {install_advice(address.kind)}"
        ) from error


def store_tables(address: StoreAddress, kind: StoredKind) -> dict[type, StoreTable]:
    """Return the tables of an output by the class of their records. Raises BadInput for a single table that would have
    to hold pages and items; in Redis, `:pages` and `:items` are added to its name."""
    if kind == "all" and address.kind == "redis":
        return {
            PageRecord: pages_table(f"{address.table}:pages", address.key),
            ItemRecord: items_table(f"{address.table}:items", address.key),
        }
    if kind == "all" and address.table:
        raise BadInput(
            f"the output {address} cannot hold both pages and items. Name no table, so that there are two: pages and "
            "items."
        )
    tables: dict[type, StoreTable] = {}
    if kind != "items":
        tables[PageRecord] = pages_table(address.table, address.key)
    if kind != "pages":
        tables[ItemRecord] = items_table(address.table, address.key)
    return tables


def check_store(text: str, kind: StoredKind) -> None:
    """Connect to the store of an output, and make its tables. Raises BadInput, in one line, if rows cannot be written
    there."""
    address = StoreAddress.parse(text)
    tables = store_tables(address, kind)
    store = open_store(address)
    try:
        for table in tables.values():
            store.prepare(table)
    except SinkError as error:
        raise BadInput(f"the output cannot be used: {error.detail}") from error
    finally:
        store.close()


def delete_crawl(text: str, kind: StoredKind, crawl_id: str) -> None:
    """Delete the rows of a crawl in the tables of an output. Raises SinkError."""
    address = StoreAddress.parse(text)
    store = open_store(address)
    try:
        for table in store_tables(address, kind).values():
            store.delete_crawl(table, crawl_id)
    finally:
        store.close()


class RefusedRows:
    """A file with the rows that a store refused, one JSON object a line. Several processes may write to it."""

    def __init__(self, folder: Path, address: StoreAddress) -> None:
        self._folder = folder
        self._address = address
        self._files: dict[str, AppendFile] = {}

    def write(self, table: StoreTable, refused: Sequence[RefusedRow]) -> Path:
        """Append rows, and return the file when they are durable. Raises SinkError."""
        path = self.path(table)
        file = self._files.get(table.name)
        if file is None:
            file = self._files[table.name] = AppendFile(path, PlainLines(), list)
        file.append([b"".join(self._line(table, one) for one in refused)])
        return path

    def path(self, table: StoreTable) -> Path:
        """Return the file of a table's rows."""
        return self._folder / f"{self._address.kind}-{re.sub('[^A-Za-z0-9_.-]', '_', table.name)}.jsonl"

    def _line(self, table: StoreTable, refused: RefusedRow) -> bytes:
        fields: dict[str, Any] = {
            "store": str(self._address),
            "table": table.name,
            "field": refused.field,
            "value": refused.row.get(refused.field),
            "reason": refused.reason,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "row": refused.row,
        }
        return encode_value(fields) + b"\n"

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            file.close()


class StoreSink:
    """Sink that writes each batch to the tables of a store. Implements Sink (sinks/base.py)."""

    wants_wire = False
    wants_text = True

    def __init__(
        self, address: StoreAddress, kind: StoredKind, refused_folder: Path, on_refused: OnRefused | None
    ) -> None:
        """`refused_folder`: for the file of refused rows. Raises BadInput if the driver is not installed."""
        self.address = address
        self._tables = store_tables(address, kind)
        self._store = open_store(address)
        self._refused = RefusedRows(refused_folder, address)
        self._on_refused = on_refused
        self._thread = SinkThread("sink-store")

    async def write(self, outputs: Sequence[Output]) -> None:
        if not outputs:
            return
        for sentence, count in await self._thread.run(lambda: self.add([output.record for output in outputs])):
            if self._on_refused is not None:
                self._on_refused(sentence, count)

    def add(self, records: Iterable[PageRecord | ItemRecord]) -> list[tuple[str, int]]:
        """Write records, and return when they are durable, in the calling thread. The items of a page must follow each
        other. Return a sentence about the rows that were refused, and their number. Raises SinkError."""
        pages = []
        items = []
        for record in records:
            if isinstance(record, PageRecord):
                pages.append(page_row(record))
            else:
                items.append(record)
        told = []
        for kind, rows in ((PageRecord, pages), (ItemRecord, rows_of_items(items))):
            if rows and kind in self._tables:
                table = self._tables[kind]
                if refused := self._store.write(table, rows):
                    told.append((refused_sentence(self.address, refused, self._refused.write(table, refused)),
                                 len(refused)))  # fmt: skip
        return told

    async def close(self) -> None:
        await self._thread.run(self.disconnect)

    def disconnect(self) -> None:
        """Close the connection and the file of refused rows."""
        self._store.close()
        self._refused.close()


def refused_sentence(address: StoreAddress, refused: Sequence[RefusedRow], path: Path) -> str:
    """Return the warning that a store refused rows, with the first one's field, value and reason."""
    row, field, reason = refused[0]
    value = encode_value(row.get(field)).decode()
    if len(value) > _VALUE_CHARACTERS:
        value = f"{value[:_VALUE_CHARACTERS]}…"
    what = f"the field {field} with the value {value}: " if field else ""
    are = "rows that do" if len(refused) > 1 else "row that does"
    return f"{address} refused {len(refused):,} {are} not fit, for example {what}{reason}. See {path}."
