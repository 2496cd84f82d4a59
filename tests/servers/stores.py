"""The servers of stores behind one interface, for tests that are the same for all of them."""

import contextlib
import json
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import psycopg
import pymysql
from psycopg.rows import dict_row

from tests.servers.mariadb import MariaDb, mariadb
from tests.servers.opensearch import OpenSearchServer, opensearch
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.valkey import Server, standalone

TYPED = ("postgresql", "mysql", "opensearch")
"""Kinds of stores whose columns have types, so that a value may not fit."""
KINDS = (*TYPED, "redis")


class StoreServer(Protocol):
    """A server of a store."""

    kind: str

    @property
    def pid(self) -> int: ...

    def address(self) -> str:
        """Address of an empty place: a new database, or a server without the indexes `pages` and `items`."""

    def at(self, address: str, table: str, **options: str) -> str:
        """Return the address with a table of its own name in it."""

    def rows(self, address: str, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table, without the columns that have no value. Arrays and objects are decoded, and
        numbers without a fraction are integers."""

    def column(self, address: str, table: str, name: str) -> list[str]:
        """Return a column of all rows of a table, of any number."""

    def kill(self) -> None: ...

    def start(self) -> None: ...


class _Killable(Protocol):
    @property
    def pid(self) -> int: ...

    def kill(self) -> None: ...

    def start(self) -> None: ...


ServerT = TypeVar("ServerT", bound=_Killable)


class _RunningStore(Generic[ServerT]):
    """What all stores have in common."""

    def __init__(self, server: ServerT) -> None:
        self.server = server

    @property
    def pid(self) -> int:
        return self.server.pid

    def kill(self) -> None:
        self.server.kill()

    def start(self) -> None:
        self.server.start()


class PostgreSqlServer(_RunningStore[PostgreSql]):
    kind = "postgresql"

    def address(self) -> str:
        url = urlsplit(self.server.new_database())
        return f"postgresql://postgres@localhost{url.path}?host={parse_qs(url.query)['host'][0]}"

    def at(self, address: str, table: str, **options: str) -> str:
        return _with_options(address, {"table": table} | options)

    def rows(self, address: str, table: str) -> list[dict[str, Any]]:
        with self._connect(address) as connection:
            return [_plain(row) for row in connection.execute(f"SELECT * FROM {table}").fetchall()]

    def column(self, address: str, table: str, name: str) -> list[str]:
        with self._connect(address) as connection:
            return [row[name] for row in connection.execute(f"SELECT {name} FROM {table}").fetchall()]

    def execute(self, address: str, statement: str) -> None:
        with self._connect(address) as connection:
            connection.execute(statement)

    def restricted(self, address: str, rights: str, table: str) -> str:
        """Return the address for a new user who has only these rights, on one table."""
        user = unique("u")
        self.execute(address, f"CREATE ROLE {user} LOGIN; GRANT {rights} ON {table} TO {user}")
        return address.replace("postgres@", f"{user}@")

    @contextlib.contextmanager
    def locked(self, address: str, table: str) -> Iterator[None]:
        """Keep others from a table until the end of the block."""
        with self._connect(address) as connection, connection.transaction():
            connection.execute(f"LOCK TABLE {table}")
            yield

    @contextlib.contextmanager
    def short_lock_timeout(self, address: str) -> Iterator[None]:
        """Let new connections wait for a lock for a fifth of a second until the end of the block."""
        name = urlsplit(address).path[1:]
        self.execute(address, f"ALTER DATABASE {name} SET lock_timeout = '200ms'")
        yield
        self.execute(address, f"ALTER DATABASE {name} RESET lock_timeout")

    def _connect(self, address: str) -> "psycopg.Connection[dict[str, Any]]":
        url = urlsplit(address)
        host = parse_qs(url.query)["host"][0]
        return psycopg.connect(host=host, user="postgres", dbname=url.path[1:], row_factory=dict_row, autocommit=True)


class MariaDbServer(_RunningStore[MariaDb]):
    kind = "mysql"

    def address(self) -> str:
        return self.server.new_database(password="s3cret")

    def at(self, address: str, table: str, **options: str) -> str:
        return _with_options(address, {"table": table} | options)

    def rows(self, address: str, table: str) -> list[dict[str, Any]]:
        with self._connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return [_plain(row) for row in cursor.fetchall()]

    def column(self, address: str, table: str, name: str) -> list[str]:
        with self._connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT {name} FROM {table}")
            return [row[name] for row in cursor.fetchall()]

    def execute(self, address: str, statement: str) -> None:
        with self._connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(statement)

    def restricted(self, address: str, rights: str, table: str) -> str:
        """Return the address for a new user who has only these rights, on one table."""
        user, url = unique("u"), urlsplit(address)
        self.server.execute(f"CREATE USER '{user}'@'127.0.0.1' IDENTIFIED BY 's3cret'")
        self.server.execute(f"GRANT {rights} ON {url.path[1:]}.{table} TO '{user}'@'127.0.0.1'")
        return url._replace(netloc=f"{user}:s3cret@127.0.0.1:{url.port}").geturl()

    @contextlib.contextmanager
    def locked(self, address: str, table: str) -> Iterator[None]:
        """Keep others from a table until the end of the block."""
        with self._connect(address) as connection, connection.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            yield

    @contextlib.contextmanager
    def short_lock_timeout(self, address: str) -> Iterator[None]:
        """Let new connections wait for a lock for a second until the end of the block."""
        self.execute(address, "SET GLOBAL lock_wait_timeout = 1")
        yield
        self.execute(address, "SET GLOBAL lock_wait_timeout = DEFAULT")

    def _connect(self, address: str) -> Any:
        return pymysql.connect(
            unix_socket=str(self.server.socket),
            user="root",
            database=urlsplit(address).path[1:],
            cursorclass=pymysql.cursors.DictCursor,
            autocommit=True,
        )


class OpenSearchIndexes(_RunningStore[OpenSearchServer]):
    kind = "opensearch"

    def address(self) -> str:
        for index in ("pages", "items"):
            with contextlib.suppress(OSError):
                self.server.call("DELETE", index)
            with contextlib.suppress(OSError):
                self.server.call("DELETE", f"_index_template/gossamer-{index}")
        return f"opensearch://127.0.0.1:{self.server.port}"

    def at(self, address: str, table: str, **options: str) -> str:
        # One server has the indexes of all tests, so each name is used once.
        return _with_options(f"{address}/{table}", options)

    def rows(self, address: str, table: str) -> list[dict[str, Any]]:
        return [_plain(document) for document in self.server.documents(table)]

    def column(self, address: str, table: str, name: str) -> list[str]:
        return [document[name] for document in self.server.documents(table, [name])]


class RedisHashes(_RunningStore[Server]):
    kind = "redis"

    def command(self, *words: str) -> Any:
        """Return the server's answer to a command."""
        return self.server.command(*words)

    def address(self) -> str:
        return f"redis://:{self.server.password}@127.0.0.1:{self.server.port}/0?table={unique('t')}"

    def at(self, address: str, table: str, **options: str) -> str:
        return _with_options(address.partition("?")[0], {"table": table} | options)

    def rows(self, address: str, table: str) -> list[dict[str, Any]]:
        return [_plain(row) for row in self._rows(address, table)]

    def column(self, address: str, table: str, name: str) -> list[str]:
        return [row[name] for row in self._rows(address, table)]

    def _rows(self, address: str, table: str) -> list[dict[str, Any]]:
        """Return the rows of a hash; `pages` and `items` are those of the address."""
        [base] = parse_qs(urlsplit(address).query)["table"]
        names = (f"{base}:{table}", base) if table in ("pages", "items") else (table,)
        rows: list[dict[str, Any]] = []
        for name in names:
            rows += map(json.loads, self.server.command("HVALS", name))
        return rows


def _with_options(address: str, options: dict[str, str]) -> str:
    joined = "&".join(f"{name}={value}" for name, value in options.items())
    if not joined:
        return address
    return f"{address}{'&' if '?' in address else '?'}{joined}"


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(value) for name, value in row.items() if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal | float) and value == int(value):
        return int(value)
    if isinstance(value, str) and value[:1] in ("[", "{"):
        with contextlib.suppress(ValueError):
            return json.loads(value)
    return value


def unique(name: str) -> str:
    """Return a name for a table that no other test has."""
    return f"{name}_{uuid4().hex[:8]}"


@contextlib.contextmanager
def store_server(kind: str) -> Iterator[StoreServer]:
    """A server that runs until the end of the block."""
    with contextlib.ExitStack() as stack:
        if kind == "postgresql":
            yield PostgreSqlServer(stack.enter_context(postgresql()))
        elif kind == "mysql":
            yield MariaDbServer(stack.enter_context(mariadb()))
        elif kind == "redis":
            yield RedisHashes(stack.enter_context(standalone(tcp=True, password="s3cret")))
        else:
            yield OpenSearchIndexes(stack.enter_context(opensearch()))
