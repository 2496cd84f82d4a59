"""Item pipelines that write to stores: PostgreSQL, MySQL and MariaDB, OpenSearch and Elasticsearch, Redis.

They work in any Scrapy project, with and without Gossamer's frontier. The stores are those of the outputs of a crawl
(sinks/stores).

Fixed: the names of the classes and settings, which projects write into their settings; and that `process_item` returns
an item only when it is durable, because its request is reported as done after that.
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit, urlunsplit

from itemadapter import ItemAdapter
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem, NotConfigured

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, BadSetting, SinkError
from gossamer.model import DATA_DIR
from gossamer.model.json_codec import encode_value
from gossamer.scrapy.options import abort
from gossamer.sinks.base import SinkThread
from gossamer.sinks.stores.address import StoreAddress, StoreKind, is_store
from gossamer.sinks.stores.rows import RefusedRow, Row, Store, StoreTable, with_text_names
from gossamer.sinks.stores.sink import RefusedRows, open_store, refused_sentence
from gossamer.telemetry.logs import ROWS_REFUSED, Troubles

log = logging.getLogger("gossamer.scrapy")

_BATCH_ROWS: Final = 1000
"""Items of one batch at most. More make longer transactions, fewer make more of them."""
_LINGER_SECONDS: Final = 0.01
"""Time for which the first item of a batch waits for others. Longer makes larger batches and slower items."""
_KEY: Final = "_key"
"""Column that is the key of a table if the address names none: the item's `url`, or else a hash of its fields. Fixed:
existing tables have it."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""Types of values that are stored as they are."""


class _WaitingRow(NamedTuple):
    """The row of an item that is being processed."""

    row: Row
    written: "asyncio.Future[RefusedRow | None]"
    """Done when the row is durable (None), is refused for good, or a bug has raised an error."""


class StorePipeline:
    """Base class of the pipelines: writes items in batches, each of which is written while the next one fills.

    A store that is away makes the items wait, and with them the crawl, within Scrapy's limits (CONCURRENT_ITEMS,
    SCRAPER_SLOT_MAX_ACTIVE_SIZE). An item that does not fit its table is dropped, and is in the folder
    `.gossamer/refused` with its field, value and reason.
    """

    settings_names: ClassVar[tuple[str, ...]]
    """Settings with the store's address. The first one that is set counts."""
    kind: ClassVar[StoreKind]
    """Kind of the store."""

    def __init__(self, crawler: Crawler, address: StoreAddress) -> None:
        """Connect, and make the table if there is none. Raises BadInput."""
        self.address = address
        key = address.key or (_KEY,)
        self.table = StoreTable(address.table or "items", key, dict.fromkeys(key, "key"))
        self._has_own_key = bool(address.key)
        folder = Path(crawler.settings.get("GOSSAMER_DATA_DIR") or DATA_DIR) / "refused"
        self._refused = RefusedRows(folder, address)
        self._store: Store = open_store(address)
        self._thread = SinkThread("store-pipeline")
        self._retrier = Retrier(Troubles())
        assert crawler.stats is not None
        self._stats = crawler.stats
        self._waiting: list[_WaitingRow] = []
        self._writing: asyncio.Future[None] | None = None
        try:
            self._store.prepare(self.table)
        except SinkError as error:
            raise BadInput(error.detail) from error

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        """Return the pipeline. Without an address there is none; an address that cannot be used stops the start, with a
        message of one line."""
        name = next((name for name in cls.settings_names if crawler.settings.get(name)), None)
        if name is None:
            raise NotConfigured(f"{' or '.join(cls.settings_names)} is not set")
        try:
            text = cls.store_address(crawler.settings.get(name))
            address = StoreAddress.parse(text) if is_store(text) else None
            if address is None or address.kind != cls.kind:
                raise BadInput(f"write {cls.kind}://USER@HOST:PORT/NAME")
            return cls(crawler, address)
        except BadInput as error:
            abort(BadSetting(f"{name}: {error.detail}"))

    @classmethod
    def store_address(cls, text: str) -> str:
        """Return the address of a store for the value of the setting."""
        return text

    async def process_item(self, item: Any) -> Any:
        """Return the item when it is durable. Raises DropItem for one that does not fit its table."""
        waiting = _WaitingRow(self._row(item), asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write())
        refused = await waiting.written
        if refused is not None:
            raise DropItem(refused_sentence(self.address, [refused], self._refused.path(self.table)))
        return item

    async def close_spider(self) -> None:
        """Disconnect. Items that are still being processed are written first."""
        if self._writing is not None:
            await self._writing
        await self._thread.run(self._disconnect)
        self._thread.close()

    def _disconnect(self) -> None:
        self._store.close()
        self._refused.close()

    def _row(self, item: Any) -> Row:
        """Return the row of an item, with its key."""
        row: Row = dict(item) if isinstance(item, dict) else dict(ItemAdapter(item).items())
        for value in row.values():
            if type(value) not in _PLAIN and not _is_plain(value):
                row = ItemAdapter(item).asdict()
                break
        row = with_text_names(row)
        if not self._has_own_key:
            url = row.get("url")
            row[_KEY] = url if isinstance(url, str) and url else _content_hash(row)
        return row

    async def _write(self) -> None:
        """Write batches until no item waits."""
        try:
            await asyncio.sleep(_LINGER_SECONDS)
            while self._waiting:
                batch, self._waiting = self._waiting[:_BATCH_ROWS], self._waiting[_BATCH_ROWS:]
                await self._write_batch(batch)
                # Items that waited for this batch let others in, which belong into the next one.
                await asyncio.sleep(0)
        finally:
            self._writing = None

    async def _write_batch(self, batch: Sequence[_WaitingRow]) -> None:
        """Write rows and wake their items. Repeats that, without a limit, while the store is away."""
        rows = [waiting.row for waiting in batch]
        refused: list[RefusedRow] = []

        async def write() -> None:
            refused[:] = await self._thread.run(lambda: self._write_rows(rows))

        fault: Exception | None = None
        try:
            await self._retrier.write_output(write)
        except Exception as error:
            fault = error
        misfits = {id(one.row): one for one in refused}
        for row, written in batch:
            if written.done():  # the item was cancelled
                continue
            if fault is None:
                written.set_result(misfits.get(id(row)))
            else:
                written.set_exception(fault)
        if fault is None:
            self._count(len(rows), refused)

    def _count(self, rows: int, refused: Sequence[RefusedRow]) -> None:
        """Count a batch in the crawler's statistics, and log the rows that were refused."""
        self._stats.inc_value(f"gossamer/{self.kind}/items", rows - len(refused))
        self._stats.inc_value(f"gossamer/{self.kind}/batches")
        if refused:
            self._stats.inc_value(f"gossamer/{self.kind}/refused", len(refused))
            path = self._refused.path(self.table)
            log.warning("%s %s", ROWS_REFUSED, refused_sentence(self.address, refused, path))

    def _write_rows(self, rows: list[Row]) -> list[RefusedRow]:
        """Write rows, and those that do not fit to their file. Returns the latter."""
        refused = self._store.write(self.table, rows)
        if refused:
            self._refused.write(self.table, refused)
        return refused


class PostgreSqlPipeline(StorePipeline):
    """Writes items to PostgreSQL: `POSTGRESQL_PIPELINE_URL = "postgresql://me@db.example/shop?table=offers"`."""

    settings_names = ("POSTGRESQL_PIPELINE_URL",)
    kind = "postgresql"


class MySqlPipeline(StorePipeline):
    """Writes items to MySQL or MariaDB: `MYSQL_PIPELINE_URL = "mysql://me@db.example/shop?table=offers"`."""

    settings_names = ("MYSQL_PIPELINE_URL",)
    kind = "mysql"


class OpenSearchPipeline(StorePipeline):
    """Writes items to OpenSearch or Elasticsearch: `ES_PIPELINE_URL = "http://search.example:9200/offers"`."""

    settings_names = ("OPENSEARCH_PIPELINE_URL", "ES_PIPELINE_URL")
    kind = "opensearch"

    @classmethod
    def store_address(cls, text: str) -> str:
        """Return the address of a store. http:// and https:// addresses name the server, the index, and maybe a type of
        documents, which servers no longer have."""
        split = urlsplit(text)
        if split.scheme not in ("http", "https"):
            return text.replace("elasticsearch://", "opensearch://", 1)
        index = split.path.strip("/").partition("/")[0]
        options = "&".join(filter(None, (split.query, "tls=true" if split.scheme == "https" else "")))
        return f"opensearch://{split.netloc}/{index}{'?' if options else ''}{options}"


class RedisHashPipeline(StorePipeline):
    """Writes items to a hash of Redis or Valkey: `REDIS_HASH_PIPELINE_URL = "redis://h.example/0?table=offers"`."""

    settings_names = ("REDIS_HASH_PIPELINE_URL", "REDIS_PIPELINE_URL")  # the second one is also the look-ups' cache
    kind = "redis"

    @classmethod
    def store_address(cls, text: str) -> str:
        """Return the address of a store. One that names no hash, such as `redis://cache.example`, means `items`."""
        split = urlsplit(text)
        if "table" in parse_qs(split.query, keep_blank_values=True):
            return text
        return urlunsplit(split._replace(query="&".join(filter(None, (split.query, "table=items")))))


def _is_plain(value: object) -> bool:
    """Return whether a list or dictionary holds values that are stored as they are, and nothing deeper."""
    if type(value) is list or type(value) is tuple:
        return _PLAIN.issuperset(map(type, value))
    return type(value) is dict and _PLAIN.issuperset(map(type, value.values()))


def _content_hash(row: Row) -> str:
    """Return a hash of an item's fields, whatever their order. Fixed: existing rows have it as their key."""
    return hashlib.blake2b(encode_value(sorted(row.items())), digest_size=16).hexdigest()
