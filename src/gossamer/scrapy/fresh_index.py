"""Index of the pages that a Scrapy project has handled: what it needs to know in the next run to handle only those that
have changed.

A SQLite file, which the processes of one machine share, or a schema of a PostgreSQL database for those of several. The
event loop never waits for it: one thread makes all lookups and writes that came together in one transaction.

Fixed: the table, which later releases read; and that a page is written only after its items have left this process.
"""

import asyncio
import json
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from gossamer.commit.retrier import Retrier
from gossamer.errors import BadInput, SinkError
from gossamer.fresh.database import IndexDatabase, open_database
from gossamer.model.crawl import CrawlId
from gossamer.net.credentials import hide_secrets
from gossamer.option_names import label

_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS pages (key BIGINT PRIMARY KEY, callback BIGINT NOT NULL, content BIGINT NOT NULL, "
    "has_requests SMALLINT NOT NULL, etag TEXT NOT NULL, modified TEXT NOT NULL, response {blob} NOT NULL)",
)
_FORMAT: Final = "scrapy 1"
_COLUMNS: Final = "key, callback, content, has_requests, etag, modified, response"
_STORE: Final = (
    f"INSERT INTO pages ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
    "callback = excluded.callback, content = excluded.content, has_requests = excluded.has_requests, "
    "etag = excluded.etag, modified = excluded.modified, response = excluded.response"
)
_SCHEMA_PREFIX: Final = "gossamer-scrapy "
"""First part of the name of a PostgreSQL schema. Must differ from those of crawls, which a service lists. Fixed."""
_MOST_AT_ONCE: Final = 500
"""Lookups, and writes, of one transaction. More make the first of them wait longer."""
_CLOSE_SECONDS: Final = 5.0
"""Longest time that a closing process waits for the database."""
Headers = list[tuple[str, list[str]]]


class KnownPage(NamedTuple):
    """A page as it was when all of its items and requests had been handled."""

    callback: int
    """Hash of the callback's name and arguments."""
    content: int
    """Hash of its content."""
    has_requests: bool
    """True: the callback yielded requests, so it has to run again for them."""
    etag: str = ""
    modified: str = ""
    """Validators as the server has sent them. Empty: none."""
    response: bytes = b""
    """The response, by `packed_response`. Empty: it is not needed, or the server forbids to store it."""


class FreshIndex:
    """Pages of one crawl."""

    def __init__(self, address: str, crawl: CrawlId, retrier: Retrier) -> None:
        """`address`: path of a SQLite file, or postgresql://HOST/DATABASE."""
        self._address = address
        self._crawl = crawl
        self._retrier = retrier
        self._database: IndexDatabase | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gossamer-fresh")
        self._lookups: list[tuple[int, asyncio.Future[KnownPage | None]]] = []
        self._writes: list[tuple[int, KnownPage | None, asyncio.Future[None]]] = []
        self._task: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Open or make the index. Raises BadInput."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._prepare)

    def _prepare(self) -> None:
        try:
            self._database = self._opened()
        except BadInput as error:
            text = error.detail.removeprefix(f"{label(error.option)}: ") if error.option else error.detail
            raise BadInput(f"GOSSAMER_FRESH_INDEX: {text}") from None
        except SinkError as error:
            raise BadInput(f"GOSSAMER_FRESH_INDEX: {error.detail}. Name a place that can be written.") from None

    def _opened(self) -> IndexDatabase:
        """Return the database, which has the tables of this crawl. Raises BadInput and SinkError."""
        database = open_database(self._address, self._crawl.token, prefix=_SCHEMA_PREFIX)
        try:
            database.prepare(_TABLES)
            for fact in (("format", _FORMAT), ("crawl", str(self._crawl))):
                database.run("INSERT INTO facts (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING", fact)
            known: dict[str, str] = dict(database.rows("SELECT name, value FROM facts"))
            place = hide_secrets(self._address)
            if known["crawl"] != str(self._crawl):
                raise BadInput(f"{place} is the index of another crawl, {known['crawl']}. Name another place.")
            if known["format"] != _FORMAT:
                raise BadInput(
                    f"{place} is no index of a Scrapy project, or a newer release of Gossamer has written it. Name "
                    "another place, or upgrade."
                )
        except BaseException:
            database.close()
            raise
        return database

    async def look_up(self, key: int) -> KnownPage | None:
        """Return a page. None: it is not known. Waits while the database is away."""
        found: asyncio.Future[KnownPage | None] = asyncio.get_running_loop().create_future()
        self._lookups.append((key, found))
        self._wake()
        return await found

    async def store(self, key: int, page: KnownPage | None) -> None:
        """Store a page; None: forget it. Waits while the database is away or full."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writes.append((key, page, stored))
        self._wake()
        await stored

    def store_now(self, pages: Iterable[tuple[int, KnownPage | None]]) -> None:
        """Store pages after the index was closed. Blocking. Raises BadInput and SinkError."""
        self._prepare()
        assert self._database is not None
        try:
            self._exchange((), list(pages))
        finally:
            self._database.close()

    async def close(self) -> None:
        """Close the connection. What a database that is away has not taken is given up: its pages are repeated."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
        if self._database is not None:
            closing = self._thread.submit(self._database.close)
            await asyncio.wait([asyncio.wrap_future(closing)], timeout=_CLOSE_SECONDS)
        self._thread.shutdown(wait=False)

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        """Answer lookups and writes until there are none."""
        loop = asyncio.get_running_loop()
        while self._lookups or self._writes:
            lookups, self._lookups = self._lookups[:_MOST_AT_ONCE], self._lookups[_MOST_AT_ONCE:]
            writes, self._writes = self._writes[:_MOST_AT_ONCE], self._writes[_MOST_AT_ONCE:]
            keys = [key for key, _ in lookups]
            pages = [(key, page) for key, page, _ in writes]
            found: dict[int, KnownPage] = {}

            async def exchange(
                keys: Sequence[int] = keys,
                pages: Sequence[tuple[int, KnownPage | None]] = pages,
                found: dict[int, KnownPage] = found,
            ) -> None:
                found.update(await loop.run_in_executor(self._thread, self._exchange, keys, pages))

            try:
                await self._retrier.write_output(exchange)
            except Exception as error:
                waiting: list[asyncio.Future[Any]] = [*(one for _, one in lookups), *(one for _, _, one in writes)]
                for one in waiting:
                    if not one.done():
                        one.set_exception(error)
                continue
            for key, looked_up in lookups:
                if not looked_up.done():
                    looked_up.set_result(found.get(key))
            for _, _, stored in writes:
                if not stored.done():
                    stored.set_result(None)

    def _exchange(self, keys: Sequence[int], pages: Sequence[tuple[int, KnownPage | None]]) -> dict[int, KnownPage]:
        """Write pages, then look up others."""
        database = self._database
        assert database is not None
        if pages:
            # In the order of keys, so that two processes never wait for each other.
            last = sorted(dict(pages).items())
            with database.transaction():
                # A number in place of the truth value: PostgreSQL tells them apart.
                rows = [
                    (key, page.callback, page.content, int(page.has_requests), page.etag, page.modified, page.response)
                    for key, page in last
                    if page is not None
                ]
                database.run_many(_STORE, rows)
                database.run_many("DELETE FROM pages WHERE key = ?", [(key,) for key, page in last if page is None])
        if not keys:
            return {}
        condition, value = database.chosen("key", keys)
        rows = database.rows(f"SELECT {_COLUMNS} FROM pages WHERE {condition}", [value])
        return {row[0]: KnownPage(row[1], row[2], bool(row[3]), *row[4:]) for row in rows}


def packed_response(headers: Headers, body: bytes) -> bytes:
    """Return a response as the index stores it."""
    head = json.dumps(headers).encode()
    return zlib.compress(len(head).to_bytes(4, "big") + head + body)


def unpacked_response(packed: bytes) -> tuple[Headers, bytes]:
    """Return the headers and the body of a response that `packed_response` has packed."""
    data = zlib.decompress(packed)
    end = 4 + int.from_bytes(data[:4], "big")
    return [(name, values) for name, values in json.loads(data[4:end])], data[end:]
