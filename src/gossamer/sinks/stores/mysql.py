"""MySQL and MariaDB as a store. Needs PyMySQL."""

import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pymysql
from pymysql.converters import escape_string

from gossamer.extras import package_advice
from gossamer.model.json_codec import encode_value, to_json_types
from gossamer.sinks.stores.rows import ColumnKind, Row, StoreTable
from gossamer.sinks.stores.sql import MADE_HERE, Fault, Filling, SqlStore, TableColumn, UniqueIndex, first_line

_TYPES: Final[dict[ColumnKind, str]] = {
    "key": "VARCHAR(700)",  # of at most 4 bytes: an index takes 3072 bytes
    "text": "LONGTEXT",
    "integer": "BIGINT",
    "number": "DOUBLE",
    "boolean": "TINYINT(1)",
    "time": "DATETIME(6)",  # in UTC
    "json": "LONGTEXT",  # its functions for JSON take any text; the type JSON of MySQL refuses numbers as text
}
"""Types of new columns. Existing tables keep theirs."""
_EXACT_COLLATIONS: Final = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin")
"""Collations of new tables, the first that the server has, MariaDB's and MySQL's: for the older utf8mb4_bin, keys are
equal that differ in spaces at their end, and one row would replace the other. Existing tables keep theirs."""
_COLLATIONS: Final = "SELECT collation_name FROM information_schema.collations WHERE character_set_name = 'utf8mb4'"
_TIMES: Final = frozenset({"datetime", "timestamp"})
_FAULTS: Final = {
    **dict.fromkeys((1021, 1114), Fault.FULL),
    **dict.fromkeys((1054, 1146), Fault.SCHEMA),
    **dict.fromkeys((1205, 1213), Fault.CONFLICT),
    **dict.fromkeys((1048, 1062, 1118, 1153, 1264, 1265, 1292, 1364, 1366, 1406, 1451, 1452, 1690), Fault.VALUE),
    **dict.fromkeys((3140, 3819, 4025, 4078, 22003), Fault.VALUE),
    **dict.fromkeys((1416, 1526, 1644, 1906, 3105), Fault.VALUE),  # a place, a partition, a trigger, generated columns
    **dict.fromkeys((1044, 1142, 1143, 1227), Fault.REFUSED),  # rights
    **dict.fromkeys(
        (1031, 1071, 1101, 1117, 1178, 1235, 1347, 1845, 1846, 4119), Fault.REFUSED
    ),  # what a table can have
}
"""Numbers of errors and what they mean. The servers': fixed."""
_SPARE_BYTES: Final = 64 * 1024
"""Bytes of the largest packet that are left to what is around the values."""
_STATEMENT_BYTES: Final = 4 * 1024 * 1024
"""Bytes of a statement from which the next rows go into another one. More take memory."""
_EXACT_INTEGER: Final = 2**53
"""Largest integer of a DOUBLE without a loss: fixed."""
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
"""Types of values whose JSON is SQL."""
_COLUMN: Final = re.compile(
    r"[Cc]olumn (?:[`'\"]?[^`'\"]+[`'\"]?\.)*[`'\"]([^`'\"]+)[`'\"]|CONSTRAINT `(?:[^`.]*\.)?([^`]+)`"
)
"""Name of a column, or of a condition on it, in the message of an error."""
_INDEX: Final = re.compile(r" for key '(?:[^'.]*\.)?([^']+)'")
"""Name of a unique index in the message of an error."""
_encoder: Final = msgspec.json.Encoder()
_MODE: Final = "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
"""Mode of the session: a value that does not fit is an error, instead of being cut."""


class MySqlStore(SqlStore):
    """Store in a MySQL or MariaDB database."""

    error = pymysql.MySQLError
    max_columns = 180  # a row of more texts would be larger than a page of InnoDB
    max_name = 64

    def __init__(self, address: Any) -> None:
        super().__init__(address)
        self._packet_bytes = 0
        """Largest packet that the server takes."""
        self._depth = 0
        """Transaction (1) and savepoints in it that are open."""

    def connect(self) -> Any:
        address = self.address
        try:
            connection = pymysql.connect(
                host=address.host,
                port=address.port,
                unix_socket=address.socket or None,
                user=address.user or None,
                password=address.password,
                database=address.database,
                charset="utf8mb4",
                autocommit=True,
                connect_timeout=10,
                read_timeout=120,
                write_timeout=120,
                ssl=ssl.create_default_context() if address.tls else None,
            )
        except RuntimeError as error:  # PyMySQL needs a package for the passwords of MySQL 8
            raise pymysql.err.OperationalError(
                _NOT_ENCRYPTED,
                f"MySQL's passwords need encryption: {package_advice('cryptography')}, or add tls=true",
            ) from error
        self._depth = 0
        with connection.cursor() as cursor:
            # Less than the default isolation: locks on gaps between keys would make processes wait for each other.
            cursor.execute(f"SET SESSION sql_mode='{_MODE}', SESSION time_zone='+00:00'")
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute("SELECT @@max_allowed_packet")
            [self._packet_bytes] = cursor.fetchone() or [2**20]
        return connection

    def fault(self, error: Exception) -> Fault:
        number = error.args[0] if error.args else 0
        return _FAULTS.get(number, Fault.AWAY)

    def transaction(self, connection: Any) -> AbstractContextManager[Any]:
        return self._transaction(connection)

    @contextmanager
    def _transaction(self, connection: Any) -> Iterator[None]:
        """Open a transaction, or a savepoint in it. A deadlock has ended the whole transaction on the server."""
        name = f"s{self._depth}"
        self._execute(connection, f"SAVEPOINT {name}" if self._depth else "START TRANSACTION")
        self._depth += 1
        try:
            yield
        except BaseException as error:
            self._depth -= 1
            broken = isinstance(error, self.error) and self.fault(error) is not Fault.VALUE
            if not self._depth or not broken:
                with suppress(pymysql.MySQLError, OSError):  # a connection that is gone has no transaction
                    self._execute(connection, f"ROLLBACK TO SAVEPOINT {name}" if self._depth else "ROLLBACK")
            raise
        self._depth -= 1
        self._execute(connection, f"RELEASE SAVEPOINT {name}" if self._depth else "COMMIT")

    def describe(self, error: Exception) -> str:
        return first_line(error.args[1] if len(error.args) > 1 else error)

    def is_view(self, connection: Any, table: StoreTable) -> bool:
        query = """SELECT table_type FROM information_schema.tables
                   WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s"""
        return any("VIEW" in kind for (kind,) in self._execute(connection, query, _place(table.name)))

    def read_columns(self, connection: Any, table: StoreTable) -> dict[str, TableColumn]:
        query = """SELECT column_name, data_type, is_nullable, extra, column_default, column_comment
                   FROM information_schema.columns WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s
                   ORDER BY ordinal_position"""
        found = self._execute(connection, query, _place(table.name))
        return {
            str(name): TableColumn(
                str(kind).lower(), _filling(str(extra).upper(), default), nullable == "NO", comment == MADE_HERE
            )
            for name, kind, nullable, extra, default, comment in found
        }

    def create(self, connection: Any, table: StoreTable) -> None:
        columns = [_definition(name, kind) for name, kind in table.columns.items()]
        key = ", ".join(map(_quoted, table.key))
        known = {name for (name,) in self._execute(connection, _COLLATIONS)}
        collation = next((name for name in _EXACT_COLLATIONS if name in known), "utf8mb4_bin")
        self._execute(
            connection,
            f"CREATE TABLE IF NOT EXISTS {_table(table.name)} ({', '.join(columns)}, UNIQUE ({key})) "
            f"ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARACTER SET utf8mb4 COLLATE {collation}",
        )

    def add_columns(self, connection: Any, table: StoreTable, columns: dict[str, ColumnKind]) -> None:
        for name, kind in columns.items():  # one by one: another process may have added some of them
            try:
                self._execute(connection, f"ALTER TABLE {_table(table.name)} ADD COLUMN {_definition(name, kind)}")
            except pymysql.MySQLError as error:
                if error.args[0] != _DUPLICATE_COLUMN:
                    raise

    def read_unique(self, connection: Any, table: StoreTable) -> list[UniqueIndex]:
        query = """SELECT index_name, column_name, sub_part FROM information_schema.statistics
                   WHERE table_schema = COALESCE(%s, DATABASE()) AND table_name = %s AND non_unique = 0
                   ORDER BY index_name, seq_in_index"""
        indexes: dict[str, UniqueIndex] = {}
        for name, column, prefix in self._execute(connection, query, _place(table.name)):
            index = indexes.get(name, UniqueIndex(name, (), True))
            # Of an index on the beginning of a text, rows with the same beginning would replace each other.
            is_plain = index.is_plain and prefix is None and column is not None
            indexes[name] = UniqueIndex(name, (*index.columns, *([column] if column else [])), is_plain)
        return list(indexes.values())

    def explain(self, connection: Any, table: StoreTable, types: dict[str, str]) -> None:
        key = _quoted(table.key[0])
        values = ",".join(["''"] * len(types))
        self._execute(connection, f"EXPLAIN {_beginning(table, types)}{values}) ON DUPLICATE KEY UPDATE {key}={key}")
        if table.parent:
            self._execute(connection, f"EXPLAIN {_deletion(table, table.parent, ('',))}")

    def column_name(self, name: str) -> str:
        return name.lower()

    def can_be_column(self, name: str) -> bool:
        # Names do not end with a space, and have no characters of four bytes.
        return super().can_be_column(name) and not name.endswith(" ") and max(name) <= "\uffff"

    def insert(
        self, connection: Any, table: StoreTable, types: dict[str, str], rows: Sequence[Row], defaults: Sequence[str]
    ) -> None:
        beginning = _beginning(table, types)
        updates = [_guard(table)]
        updates += [f"{_quoted(name)}=VALUES({_quoted(name)})" for name in types if name not in table.key]
        updates += [f"{_quoted(name)}=DEFAULT" for name in defaults]
        ending = f") ON DUPLICATE KEY UPDATE {', '.join(updates)}"
        head, tail = beginning.encode(), ending.encode()
        values: list[bytes] = []
        size = 0
        limit = min(_STATEMENT_BYTES, self._packet_bytes - _SPARE_BYTES)
        for text in _values(types, rows):
            length = len(text) + 3
            if length > self._packet_bytes - _SPARE_BYTES:
                raise pymysql.err.DataError(_PACKET_TOO_LARGE, f"the row has more than {self._packet_bytes:,} bytes "
                                            "(max_allowed_packet)")  # fmt: skip
            if values and size + length > limit:
                self._execute(connection, head + b"),(".join(values) + tail)
                values, size = [], 0
            values.append(text)
            size += length
        self._execute(connection, head + b"),(".join(values) + tail)

    def find_misfit(
        self, connection: Any, table: StoreTable, types: dict[str, str], row: Row, error: Exception
    ) -> tuple[str, str]:
        if error.args[0] == _OUT_OF_RANGE:
            error = self._conflict(connection, table, types, row, error)
        message = self.describe(error)
        if error.args[0] == _DUPLICATE_KEY and (index := _INDEX.search(message)):
            return self._field_of_index(table, index[1], row), message
        found = _COLUMN.search(message)
        name = next(filter(None, found.groups()), "") if found else ""
        if error.args[0] == _PACKET_TOO_LARGE:
            name = max(row, key=lambda one: len(_literal(row[one], "")))
        return name if name in row or name in types else "", message

    def _conflict(
        self, connection: Any, table: StoreTable, types: dict[str, str], row: Row, error: Exception
    ) -> Exception:
        """Return the error that names the unique index by which a row conflicts with another one; `error`, if it does
        not. Nothing is written."""
        [values] = _values(types, [row])
        try:
            with self.transaction(connection):
                self._execute(connection, _beginning(table, types).encode() + values + b")")
                raise error
        except pymysql.MySQLError as found:
            return found

    def delete_by(self, connection: Any, table: StoreTable, column: str, values: Sequence[Any]) -> None:
        self._execute(connection, _deletion(table, column, values))

    def _execute(self, connection: Any, statement: str | bytes, values: Sequence[Any] | None = None) -> Sequence[Any]:
        """Carry out a statement and return its rows."""
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            return cursor.fetchall() or ()


_DUPLICATE_COLUMN: Final = 1060
_DUPLICATE_KEY: Final = 1062
_OUT_OF_RANGE: Final = 1690
_NOT_ENCRYPTED: Final = 2061
_PACKET_TOO_LARGE: Final = 1153
"""Numbers of errors, as above."""


def _filling(extra: str, default: Any) -> Filling:
    """Return how a column is filled. `extra`, `default`: of information_schema, the former in capitals."""
    if re.search("VIRTUAL|STORED|PERSISTENT", extra):
        return Filling.COMPUTED
    if "AUTO_INCREMENT" in extra:
        return Filling.NUMBER
    return Filling.NULL if default in (None, "NULL") else Filling.DEFAULT


def _beginning(table: StoreTable, types: dict[str, str]) -> str:
    """Return the beginning of the statement that adds rows with these columns."""
    return f"INSERT INTO {_table(table.name)} ({', '.join(map(_quoted, types))}) VALUES ("  # noqa: S608 (names are quoted)


def _deletion(table: StoreTable, column: str, values: Sequence[Any]) -> str:
    """Return the statement that deletes the rows with one of these values in a column."""
    literals = ", ".join(_literal(value, "") for value in values)
    return f"DELETE FROM {_table(table.name)} WHERE {_quoted(column)} IN ({literals})"  # noqa: S608 (names are quoted)


def _guard(table: StoreTable) -> str:
    """Return the assignment that changes nothing where the existing row has the key of the new one. Elsewhere it is an
    error, a number out of range: the rows conflict by another unique index, and the server would change the existing
    row and drop the new one."""
    key = _quoted(table.key[0])
    same = " AND ".join(f"{_quoted(name)}=VALUES({_quoted(name)})" for name in table.key)
    # The server computes the number only where it is needed, because it depends on the row.
    error = f"18446744073709551615+(1+COALESCE(LENGTH(VALUES({key})),0))"
    return f"{key}=IF(IF({same},1,{error}),{key},{key})"


def _place(table: str) -> tuple[str | None, str]:
    """Return the database of a table (None: that of the connection) and its name."""
    database, _, name = table.rpartition(".")
    return database or None, name


def _table(name: str) -> str:
    return ".".join(map(_quoted, name.split(".")))


def _definition(name: str, kind: ColumnKind) -> str:
    """Return a new column as SQL has it."""
    return f"{_quoted(name)} {_TYPES[kind]} COMMENT '{MADE_HERE}'"


def _quoted(name: str) -> str:
    """Return a name as SQL has it."""
    return "`" + name.replace("`", "``") + "`"


def _values(types: dict[str, str], rows: Sequence[Row]) -> list[bytes]:
    """Return the values of each row as SQL has them, with commas between them. `types`: of the columns, in their order.

    Nearly all JSON is SQL: `["it's \\n",300.5,null,true]` has four values. So a JSON encoder makes the text of a whole
    row, which takes a third of the time of one literal after the other. Two escapes mean something else in SQL: \\u and
    \\f. This relies on _MODE, in which double quotes enclose texts and a backslash escapes.
    """
    columns = [_plain_column([row.get(name) for row in rows], kind) for name, kind in types.items()]
    try:
        texts = [_encoder.encode(values)[1:-1] for values in zip(*columns, strict=True)]
    except (ValueError, OverflowError):  # a lone surrogate, or an integer of more than 64 bits
        texts = [b"\\u"]
    joined = b"".join(texts)
    if b"\\u" not in joined and b"\\f" not in joined:
        return texts
    kinds = list(types.items())
    return [",".join([_literal(row.get(name), kind) for name, kind in kinds]).encode() for row in rows]


def _plain_column(values: list[Any], kind: str) -> list[Any]:
    """Return the values of a column as those whose JSON is their SQL."""
    found = set(map(type, values))
    is_text = kind.endswith(("text", "char"))
    if kind != "json" and found <= _PLAIN:
        if kind in _TIMES and str in found:
            return [_time(value) if isinstance(value, str) else value for value in values]
        if bool in found and is_text:
            return [str(value).lower() if isinstance(value, bool) else value for value in values]
        if int in found and kind == "double":
            return [
                str(to_json_types(value)) if isinstance(value, int) and abs(value) > _EXACT_INTEGER else value
                for value in values
            ]
        return values
    return [value if value is None else _plain_value(value, kind) for value in values]


def _plain_value(value: Any, kind: str) -> Any:
    """Return a value as one whose JSON is its SQL."""
    if kind != "json" and type(value) in _PLAIN:
        return _plain_column([value], kind)[0]
    encoded = encode_value(value).decode()
    if kind != "json" and encoded.startswith('"'):  # a date, for example
        return _plain_column([msgspec.json.decode(encoded)], kind)[0]
    return encoded


def _literal(value: Any, kind: str) -> str:
    """Return a value as SQL has it. `kind`: the type of its column, as the server names it."""
    if value is None:
        return "NULL"
    if kind == "json":
        return f"'{escape_string(encode_value(value).decode())}'"
    if isinstance(value, str):
        if kind in _TIMES:
            value = _time(value)
            if value is None:
                return "NULL"
        return f"'{escape_string(value)}'" if value.isascii() else f"'{escape_string(_clean(value))}'"
    is_text = kind.endswith(("text", "char"))
    if isinstance(value, bool):
        return ("'true'" if value else "'false'") if is_text else str(int(value))
    if isinstance(value, int):
        plain = to_json_types(value)
        return f"'{plain}'" if kind == "double" and abs(value) > _EXACT_INTEGER else str(plain)
    if isinstance(value, float):
        return repr(value) if value - value == 0 else "NULL"  # NaN and the infinities are NULL, as in JSON
    encoded = encode_value(value).decode()
    if encoded.startswith('"'):  # a date, for example
        return _literal(msgspec.json.decode(encoded), kind)
    return f"'{escape_string(encoded)}'"


def _clean(text: str) -> str:
    """Return a text without lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return str(to_json_types(text))
    return text


def _time(text: str) -> str | None:
    """Return a time in UTC without its zone, which the servers do not all read. None: there is no time. A text that is
    no time is returned unchanged, for the server to refuse."""
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
        return (time.astimezone(UTC) if time.tzinfo else time).replace(tzinfo=None).isoformat(" ")
    except (ValueError, OverflowError):  # OverflowError: it is in the year 0 or 10000 of UTC
        return text
