"""PostgreSQL as a store. Needs psycopg.

A batch goes to the server as one JSON array, which the server takes apart (`json_to_recordset`): one parameter costs
this process much less than one for each value.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import psycopg
from psycopg import sql

from gossamer.model.json_codec import encode_value
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import ColumnKind, Row, StoreTable
from gossamer.sinks.stores.sql import MADE_HERE, Fault, Filling, SqlStore, TableColumn, UniqueIndex, first_line

_CONNECTION: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,  # milliseconds
    "application_name": "gossamer",
    "client_encoding": "utf8",  # if the database's own lacks a character, the server reports it
}
"""Options of libpq. With these, a connection to a server that has silently disappeared fails within half a minute."""
_TLS: Final = {"sslmode": "verify-full", "sslrootcert": "system"}
"""Options of libpq that verify the server's certificate."""
_TYPES: Final[dict[ColumnKind, str]] = {
    "key": "text",
    "text": "text",
    "integer": "bigint",
    "number": "numeric",  # keeps every digit of any number
    "boolean": "boolean",
    "time": "timestamp with time zone",
    "json": "jsonb",
}
"""Types of new columns. Existing tables keep theirs."""
_FAULTS: Final = (
    ("53100", Fault.FULL),
    ("42P01", Fault.SCHEMA),
    ("42703", Fault.SCHEMA),
    ("42P07", Fault.CONFLICT),  # another process has made the table
    ("42701", Fault.CONFLICT),  # or the column
    ("40", Fault.CONFLICT),
    ("55P03", Fault.CONFLICT),  # a lock
    ("428C9", Fault.VALUE),  # a value for a generated column
    ("P0001", Fault.VALUE),  # a trigger has refused it
    ("21", Fault.VALUE),  # two rows have one key, because the database sees their values as equal
    ("22", Fault.VALUE),
    ("23", Fault.VALUE),
    ("44", Fault.VALUE),  # the condition of a view
    ("54", Fault.VALUE),  # a limit of the server, such as the length of a key
    ("0A", Fault.REFUSED),
    ("42", Fault.REFUSED),  # rights, for example
)
"""Beginnings of SQLSTATE, each with its fault. The first that fits counts. Fixed by PostgreSQL."""
_SCHEMA_LOCK: Final = 7_310_946_120
"""Number of the lock under which tables are made and changed. Must be the same in all versions of Gossamer."""
_STATEMENT_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of a statement; further rows go into the next one. Larger ones take memory; the server's limit is 1
GB."""
_TIME: Final = "timestamp"
_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
"""Columns that each table has: fixed."""


class PostgreSqlStore(SqlStore):
    """Store in a PostgreSQL database."""

    error = psycopg.Error
    max_columns = 900
    max_name = 63
    max_row_bytes = 500_000_000
    """Maximum size of a row's JSON. The server closes the connection when a statement has 1 GB."""

    def __init__(self, address: StoreAddress) -> None:
        super().__init__(address)
        self._statements: dict[tuple[Any, ...], bytes] = {}
        """Statements by table and columns: to compose one takes longer than to send it."""

    def connect(self) -> Any:
        address = self.address
        return psycopg.connect(
            host=address.socket or address.host,
            port=address.port,
            user=address.user or None,
            password=address.password or None,  # else PGPASSWORD or ~/.pgpass, which libpq reads
            dbname=address.database,
            autocommit=True,
            prepare_threshold=None,  # a pool before the server may give each statement another session
            **_CONNECTION | (_TLS if address.tls else {}),
        )

    def fault(self, error: Exception) -> Fault:
        state = getattr(error, "sqlstate", None) or ""
        if state == "42501" and error.diag.source_function == "ExecWithCheckOptions":  # type: ignore[attr-defined]
            return Fault.VALUE  # a policy refuses the row: the user has the rights
        return next((fault for beginning, fault in _FAULTS if state.startswith(beginning)), Fault.AWAY)

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        return connection.transaction()  # type: ignore[no-any-return]

    def can_be_column(self, name: str) -> bool:
        return super().can_be_column(name) and name not in _SYSTEM_COLUMNS

    def is_view(self, connection: Any, table: StoreTable) -> bool:
        query = "SELECT relkind IN ('v', 'm') FROM pg_class WHERE oid = to_regclass(%s)"
        return bool(connection.execute(query, [_quoted(table.name)]).fetchone() == (True,))

    def read_columns(self, connection: Any, table: StoreTable) -> dict[str, TableColumn]:
        query = """SELECT attname, format_type(atttypid, atttypmod), attnotnull, attidentity::text, attgenerated::text,
                   pg_get_expr(adbin, adrelid), col_description(attrelid, attnum)
                   FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
                   WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped ORDER BY attnum"""
        found = connection.execute(query, [_quoted(table.name)]).fetchall()
        return {
            name: TableColumn(kind, _filling(*made), required, comment == MADE_HERE)
            for name, kind, required, *made, comment in found
        }

    def create(self, connection: Any, table: StoreTable) -> None:
        columns = [sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(_TYPES[kind]))
                   for name, kind in table.columns.items()]  # fmt: skip
        # Not a primary key: rows without a value for the key are added.
        statement = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({}, UNIQUE ({}))").format(
            _identifier(table.name), sql.SQL(", ").join(columns), _names(table.key)
        )
        self._change(connection, table, statement, table.columns)

    def add_columns(self, connection: Any, table: StoreTable, columns: dict[str, ColumnKind]) -> None:
        added = [sql.SQL("ADD COLUMN IF NOT EXISTS {} {}").format(sql.Identifier(name), sql.SQL(_TYPES[kind]))
                 for name, kind in columns.items()]  # fmt: skip
        statement = sql.SQL("ALTER TABLE {} {}").format(_identifier(table.name), sql.SQL(", ").join(added))
        self._change(connection, table, statement, columns)

    def _change(self, connection: Any, table: StoreTable, statement: sql.Composed, columns: Iterable[str]) -> None:
        """Change the schema. A lock admits one process at a time: two that create one table at once would fail.
        `columns`: names of the new columns."""
        comment = sql.SQL("COMMENT ON COLUMN {}.{} IS {}")
        made = [comment.format(_identifier(table.name), sql.Identifier(name), MADE_HERE) for name in columns]
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", [_SCHEMA_LOCK])
            connection.execute(sql.SQL("; ").join([statement, *made]))

    def read_unique(self, connection: Any, table: StoreTable) -> list[UniqueIndex]:
        # The columns behind INCLUDE, which rows may share, are no part of the key.
        query = """SELECT relname, array_agg(attname::text ORDER BY place) FILTER (WHERE attname IS NOT NULL),
                   indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
                   FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
                   CROSS JOIN unnest(indkey::int2[]) WITH ORDINALITY AS keys (number, place)
                   LEFT JOIN pg_attribute ON attrelid = indrelid AND attnum = number
                   WHERE indrelid = to_regclass(%s) AND indisunique AND place <= indnkeyatts
                   GROUP BY indexrelid, relname, indimmediate, indisvalid, indpred, indexprs"""
        found = connection.execute(query, [_quoted(table.name)]).fetchall()
        return [UniqueIndex(name, tuple(columns or ()), is_plain) for name, columns, is_plain in found]

    def explain(self, connection: Any, table: StoreTable, types: dict[str, str]) -> None:
        statement = self._upsert(connection, table, types, ())
        connection.execute(b"EXPLAIN " + statement, ["[]"])
        if table.parent:
            connection.execute(b"EXPLAIN " + _deletion(table, table.parent).as_bytes(connection), [[]])

    def insert(
        self, connection: Any, table: StoreTable, types: dict[str, str], rows: Sequence[Row], defaults: Sequence[str]
    ) -> None:
        known = (table.name, *types.items(), *defaults)
        statement = self._statements.get(known)
        if statement is None:
            statement = self._statements[known] = self._upsert(connection, table, types, defaults)
        parts: list[bytes] = []
        size = 0
        for part in _encoded(types, rows):
            if len(part) > self.max_row_bytes:
                raise psycopg.errors.ProgramLimitExceeded(f"the row has more than {self.max_row_bytes:,} bytes")
            if parts and size + len(part) > _STATEMENT_BYTES:
                connection.execute(statement, [_array(parts)])
                parts, size = [], 0
            parts.append(part)
            size += len(part)
        connection.execute(statement, [_array(parts)])

    def _upsert(self, connection: Any, table: StoreTable, types: dict[str, str], defaults: Sequence[str]) -> bytes:
        """Return the statement that writes rows with these columns."""
        names = _names(types, escaped=True)
        updates = [sql.SQL("{0} = excluded.{0}").format(_column(name)) for name in types
                   if name not in table.key]  # fmt: skip
        updates += [sql.SQL("{} = DEFAULT").format(_column(name)) for name in defaults]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(updates)) if updates else sql.SQL("NOTHING")
        statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
            _identifier(table.name), names, names, _recordset(types), _names(table.key, escaped=True), action
        )
        return statement.as_bytes(connection)

    def find_misfit(
        self, connection: Any, table: StoreTable, types: dict[str, str], row: Row, error: Exception
    ) -> tuple[str, str]:
        diagnosis = getattr(error, "diag", None)
        named = getattr(diagnosis, "column_name", None)
        if named:
            return named, first_line(error)
        if isinstance(error, psycopg.errors.UniqueViolation):
            return self._field_of_index(table, getattr(diagnosis, "constraint_name", None) or "", row), first_line(
                error
            )
        if isinstance(error, psycopg.errors.ProgramLimitExceeded) and not getattr(
            diagnosis, "sqlstate", None
        ):  # raised by insert()
            return max(row, key=lambda name: len(encode_value(row[name]))), first_line(error)
        for name, value in row.items():
            if value is None or name not in types:
                continue
            try:
                with connection.transaction():
                    one = {name: types[name]}
                    query = sql.SQL("SELECT count(*) FROM {}").format(_recordset(one))
                    connection.execute(query, [_array(_encoded(one, [{name: value}]))])
            except psycopg.Error as misfit:
                if self.fault(misfit) is not Fault.VALUE:
                    raise
                return name, first_line(misfit)
        return "", first_line(error)

    def delete_by(self, connection: Any, table: StoreTable, column: str, values: Sequence[Any]) -> None:
        connection.execute(_deletion(table, column), [list(values)])


def _filling(identity: str, generated: str, default: str | None) -> Filling:
    """Return how the database fills a column that an insert leaves out. `identity`, `generated`: letters of
    pg_attribute."""
    if generated or identity == "a":
        return Filling.COMPUTED
    if identity or (default or "").startswith("nextval("):
        return Filling.NUMBER
    return Filling.NULL if default is None else Filling.DEFAULT


def _quoted(table: str) -> str:
    """Return the name of a table, maybe behind that of its schema, as text for to_regclass."""
    return ".".join(f'"{part}"' for part in table.split("."))


def _identifier(table: str) -> sql.Identifier:
    return sql.Identifier(*table.split("."))


def _names(names: Any, *, escaped: bool = False) -> sql.Composed:
    """Return the names of columns, with commas between them. `escaped`: for a statement that has parameters."""
    return sql.SQL(", ").join(map(_column if escaped else sql.Identifier, names))


def _column(name: str) -> sql.Identifier:
    """Return the name of a column, for a statement that has parameters. `%` is doubled, because the driver reads a
    single one as a parameter."""
    return sql.Identifier(name.replace("%", "%%"))


def _deletion(table: StoreTable, column: str) -> sql.Composed:
    """Return the statement that deletes the rows with one of several values in a column, its parameter."""
    return sql.SQL("DELETE FROM {} WHERE {} = ANY(%s)").format(_identifier(table.name), _column(column))


def _recordset(types: dict[str, str]) -> sql.Composed:
    """Return the expression that takes the rows out of a JSON array, the parameter."""
    columns = [sql.SQL("{} {}").format(_column(name), sql.SQL(kind)) for name, kind in types.items()]
    return sql.SQL("json_to_recordset(%s::json) AS r({})").format(sql.SQL(", ").join(columns))


def _encoded(types: dict[str, str], rows: Sequence[Row]) -> list[bytes]:
    """Return the JSON of each row. An empty text in a column of times becomes null."""
    times = [name for name, kind in types.items() if kind.startswith(_TIME)]
    if times:
        rows = [row | {name: None for name in times if row.get(name) == ""} for row in rows]
    return list(map(encode_value, rows))


def _array(parts: Sequence[bytes]) -> str:
    """Return rows as a JSON array. NUL, which PostgreSQL refuses, becomes U+FFFD."""
    text = f"[{b','.join(parts).decode()}]"
    return _NUL.sub(r"\1\\ufffd", text) if "\\u0000" in text else text


_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""An escaped NUL in JSON: behind an even number of backslashes."""
