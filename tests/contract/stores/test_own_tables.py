"""Tables that people made themselves in PostgreSQL and MariaDB: indexes, defaults, generated columns, views, rights."""

from collections.abc import Iterator
from typing import Any

import pytest

from gossamer.errors import BadInput, SinkError
from gossamer.sinks.open import check_outputs
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import RefusedRow, Row, StoreTable
from gossamer.sinks.stores.sink import open_store
from gossamer.sinks.tables import TableOptions
from tests.servers.stores import MariaDbServer, PostgreSqlServer, store_server

pytestmark = pytest.mark.timeout(400)  # on a busy machine, a server may take minutes to start
_ITEMS = TableOptions(has_items=True)
SqlServer = PostgreSqlServer | MariaDbServer
URLS = StoreTable("t", ("url",))


@pytest.fixture(scope="module", params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest) -> Iterator[SqlServer]:
    with store_server(request.param) as started:
        assert isinstance(started, PostgreSqlServer | MariaDbServer)
        yield started


@pytest.fixture
def place(server: SqlServer) -> str:
    """Address of an empty database."""
    return server.address()


def write(place: str, *batches: list[Row], table: StoreTable = URLS) -> list[RefusedRow]:
    """Write batches, and return the rows that were refused."""
    store = open_store(StoreAddress.parse(place))
    try:
        store.prepare(table)
        return [refused for batch in batches for refused in store.write(table, batch)]
    finally:
        store.close()


def by_url(server: SqlServer, place: str, column: str) -> dict[str, Any]:
    return {row.get("url"): row.get(column) for row in server.rows(place, "t")}


def told(refused: list[RefusedRow]) -> list[tuple[Any, str]]:
    """Return url and field of refused rows."""
    return [(one.row["url"], one.field) for one in refused]


def test_a_row_that_conflicts_with_another_unique_index_is_refused_and_costs_no_row(
    server: SqlServer, place: str
) -> None:
    server.execute(
        place, "CREATE TABLE t (url VARCHAR(50) UNIQUE, n INTEGER, code VARCHAR(20), CONSTRAINT codes UNIQUE (code))"
    )
    first = [{"url": "a", "code": "A", "n": 1}, {"url": "b", "code": "B", "n": 1}]
    second = [
        {"url": "c", "code": "A", "n": 2},  # a new row with the code of another one
        {"url": "b", "code": "A", "n": 2},  # an existing row that would get the code of another one
        {"url": "a", "code": "A", "n": 2},
        {"url": "d", "code": "D", "n": 2},
        {"url": "e", "code": "D", "n": 2},
    ]
    refused = write(place, first, second)
    assert by_url(server, place, "code") == {"a": "A", "b": "B", "d": "D"}
    assert by_url(server, place, "n") == {"a": 2, "b": 1, "d": 2}
    assert sorted(told(refused)) == [("b", "code"), ("c", "code"), ("e", "code")]
    assert all("codes" in one.reason for one in refused)


def test_a_unique_index_that_is_made_during_the_crawl_costs_no_row(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) UNIQUE, code VARCHAR(20), n INTEGER)")
    store = open_store(StoreAddress.parse(place))
    assert store.write(URLS, [{"url": "a", "code": "A", "n": 1}]) == []
    server.execute(place, "CREATE UNIQUE INDEX codes ON t (code)")
    refused = store.write(URLS, [{"url": "b", "code": "A", "n": 2}, {"url": "c", "code": "C", "n": 2}])
    store.close()
    assert [(one.row["url"], "codes" in one.reason) for one in refused] == [("b", True)]
    assert by_url(server, place, "n") == {"a": 1, "c": 2}


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_a_table_whose_history_is_kept_refuses_only_the_items_with_new_fields(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) UNIQUE, n INTEGER) WITH SYSTEM VERSIONING")
    refused = write(place, [{"url": "a", "n": 1}], [{"url": "a", "n": 2}, {"url": "b", "extra": 1}])
    assert told(refused) == [("b", "extra")]
    assert by_url(server, place, "n") == {"a": 2}


def test_a_row_without_a_key_does_not_replace_a_row_by_another_unique_index(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) UNIQUE, code VARCHAR(20) UNIQUE)")
    table = StoreTable("t", ("url",), may_lack_key=True)
    [refused] = write(place, [{"url": None, "code": "A"}], [{"url": None, "code": "A"}, {"url": "b"}], table=table)
    assert refused.field == "code"
    assert by_url(server, place, "code") == {None: "A", "b": None}


def test_rows_of_a_table_with_a_numbered_key_of_its_own_replace_each_other(server: SqlServer, place: str) -> None:
    number = "INTEGER AUTO_INCREMENT" if server.kind == "mysql" else "SERIAL"
    server.execute(
        place,
        f"CREATE TABLE t (id {number} PRIMARY KEY, shop VARCHAR(9), url VARCHAR(50), n INTEGER, UNIQUE (shop, url))",
    )
    table = StoreTable("t", ("url", "shop"))
    rows = [{"url": f"u{number}", "shop": "s", "n": number} for number in range(5)]
    newer = [row | {"n": 9} for row in rows[:2]]
    assert write(place, rows, newer, table=table) == []
    assert by_url(server, place, "n") == {"u0": 9, "u1": 9, "u2": 2, "u3": 3, "u4": 4}
    ids = {row["url"]: row["id"] for row in server.rows(place, "t")}
    assert (
        write(
            place, [newer[0] | {"id": 77}, {"url": "u1", "shop": "s", "n": 8}, {"url": "u9", "shop": "s"}], table=table
        )
        == []
    )
    after = {row["url"]: row["id"] for row in server.rows(place, "t")}
    assert after == ids | {"u0": 77, "u9": after["u9"]}


def test_a_row_without_a_field_gets_the_default_of_its_column(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) PRIMARY KEY, stock INTEGER NOT NULL DEFAULT 5, "
                          "state VARCHAR(9) DEFAULT 'new', title VARCHAR(9))")  # fmt: skip
    rows: list[Row] = [
        {"url": "a", "stock": 1, "state": "old", "title": "A"},
        {"url": "b"},
        {"url": "c", "stock": None, "state": None},
        {"url": "d", "state": "old"},
    ]
    assert write(place, rows, [{"url": "a"}]) == []
    assert by_url(server, place, "stock") == {"a": 5, "b": 5, "c": 5, "d": 5}
    assert by_url(server, place, "state") == {"a": "new", "b": "new", "c": None, "d": "old"}
    assert by_url(server, place, "title") == {"a": None, "b": None, "c": None, "d": None}


def test_a_row_of_a_later_crawl_leaves_the_columns_of_a_person_and_empties_its_own(
    server: SqlServer, place: str
) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) PRIMARY KEY, note VARCHAR(9))")
    assert write(place, [{"url": "a", "price": 1, "tag": "x"}]) == []
    server.execute(place, "UPDATE t SET note = 'mine'")
    assert write(place, [{"url": "a", "price": 2}]) == []
    assert server.rows(place, "t") == [{"url": "a", "note": "mine", "price": 2}]


def test_a_generated_column_is_not_written_and_an_item_that_names_it_is_refused(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) PRIMARY KEY, n INTEGER, "
                          "twice INTEGER GENERATED ALWAYS AS (n * 2) STORED)")  # fmt: skip
    refused = write(
        place,
        [{"url": "a", "n": 1}, {"url": "b", "n": 2, "twice": 4}, {"url": "c", "n": 3, "twice": None}],
        [{"url": "d", "n": 4}],
    )
    assert told(refused) == [("b", "twice")]
    assert "computes" in refused[0].reason
    assert by_url(server, place, "twice") == {"a": 2, "c": 6, "d": 8}


def test_a_new_field_of_a_table_that_may_not_be_changed_refuses_only_the_items_that_have_it(
    server: SqlServer, place: str
) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) PRIMARY KEY, n INTEGER)")
    restricted = server.restricted(place, "SELECT, INSERT, UPDATE, DELETE", "t")
    refused = write(
        restricted,
        [{"url": "a", "n": 1}, {"url": "b", "extra": 2}, {"url": "c", "extra": None}],
        [{"url": "d", "extra": 1}],
    )
    assert told(refused) == [("b", "extra"), ("d", "extra")]
    assert "extra" in refused[0].reason
    assert by_url(server, place, "n") == {"a": 1, "c": None}
    server.execute(place, "ALTER TABLE t ADD COLUMN other_fields TEXT")
    assert write(restricted, [{"url": "b", "extra": 2}]) == []
    assert by_url(server, place, "other_fields") == {"a": None, "b": {"extra": 2}, "c": None}


def test_a_table_without_room_for_a_column_refuses_only_the_items_that_need_it(server: SqlServer, place: str) -> None:
    if server.kind == "mysql":
        columns = ["wide VARCHAR(65515) CHARACTER SET latin1"]  # a row has 65,535 bytes at most
    else:
        columns = [f"c{number} SMALLINT" for number in range(1599)]
    server.execute(place, f"CREATE TABLE t (url VARCHAR(9) PRIMARY KEY, {', '.join(columns)})")
    refused = write(place, [{"url": "a"}, {"url": "b", "extra": "x"}, {"url": "c"}])
    assert told(refused) == [("b", "extra")]
    assert set(by_url(server, place, "url")) == {"a", "c"}


def test_a_table_that_cannot_get_the_columns_of_records_is_told_at_the_start(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(50) PRIMARY KEY, n INTEGER)")
    restricted = server.restricted(place, "SELECT, INSERT, UPDATE, DELETE", "t")
    with pytest.raises(BadInput, match=r"lacks the columns _request_id, _position, .* and cannot get them") as raised:
        check_outputs([server.at(restricted, "t", key="url")], tables=_ITEMS)
    assert "\n" not in str(raised.value)
    assert "(1142," not in str(raised.value)
    server.execute(place, "ALTER TABLE t ADD COLUMN other_fields TEXT")
    table = StoreTable("t", ("url",), {"url": "key", "_crawlid": "text"})
    assert write(restricted, [{"url": "a", "n": 1, "_crawlid": "c"}], table=table) == []
    assert by_url(server, place, "other_fields") == {"a": {"_crawlid": "c"}}
    server.execute(place, "ALTER TABLE t DROP COLUMN other_fields")
    check_outputs([server.at(place, "t", key="url")], tables=_ITEMS)  # the owner may
    check_outputs([server.at(restricted, "t", key="url")], tables=_ITEMS)


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_unique_index_may_include_other_columns(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url TEXT, n INTEGER)")
    server.execute(place, "CREATE UNIQUE INDEX ON t (url) INCLUDE (n)")
    assert write(place, [{"url": "a", "n": 1}], [{"url": "a", "n": 2}]) == []
    assert by_url(server, place, "n") == {"a": 2}


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_partial_unique_index_is_no_key_and_still_refuses_rows(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url TEXT, n INTEGER)")
    server.execute(place, "CREATE UNIQUE INDEX ON t (url) WHERE n > 0")
    with pytest.raises(BadInput, match="needs a unique index on url"):
        write(place, [{"url": "a", "n": 1}])
    server.execute(place, "CREATE UNIQUE INDEX ON t (url)")
    server.execute(place, "CREATE UNIQUE INDEX one ON t (n) WHERE n > 5")
    refused = write(place, [{"url": "a", "n": 1}, {"url": "b", "n": 1}, {"url": "c", "n": 6}, {"url": "d", "n": 6}])
    assert told(refused) == [("d", "n")]
    assert "one" in refused[0].reason


def test_a_view_is_written_to_or_refused_at_the_start(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE base (url VARCHAR(50) PRIMARY KEY, n INTEGER, hidden INTEGER)")
    server.execute(place, "CREATE VIEW t AS SELECT url, n FROM base")
    with pytest.raises(BadInput, match="t is a view"):
        write(place, [{"url": "a", "n": 1}])
    with pytest.raises(BadInput, match="t is a view"):
        check_outputs([server.at(place, "t", key="url")], tables=_ITEMS)


def test_a_user_who_may_not_write_is_told_at_the_start(server: SqlServer, place: str) -> None:
    check_outputs([place], tables=_ITEMS)
    for rights in ("SELECT", "SELECT, INSERT, UPDATE"):
        with pytest.raises(BadInput, match=r"(?i)denied") as raised:
            check_outputs([server.restricted(place, rights, "items")], tables=_ITEMS)
        assert "\n" not in str(raised.value)
    check_outputs([server.restricted(place, "SELECT, INSERT, UPDATE, DELETE", "items")], tables=_ITEMS)


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_errors_of_mysql_are_plain_sentences(server: SqlServer, place: str) -> None:
    with pytest.raises(BadInput, match="Access denied for user") as raised:
        check_outputs([place.replace("s3cret", "0ther")])
    assert "(1045" not in str(raised.value)
    assert '"' not in str(raised.value)


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_of_another_encoding_refuses_only_the_characters_that_it_lacks(
    server: SqlServer, place: str, encoding: str
) -> None:
    name = StoreAddress.parse(place).database
    server.execute(place, f"CREATE DATABASE {name}_x ENCODING '{encoding}' TEMPLATE template0 LOCALE 'C'")
    rows = [{"url": "a", "title": "Zürich"}, {"url": "b", "title": "\U0001f3d5"}, {"url": "c"}]
    refused = write(place.replace(name, f"{name}_x"), rows, table=StoreTable("t", ("url",), {"url": "key"}))
    assert told(refused) == ([("b", "title")] if encoding == "LATIN1" else [])
    kept = server.rows(place.replace(name, f"{name}_x"), "t")
    assert len(kept) == 3 - len(refused)


@pytest.mark.parametrize("server", ["mysql"], indirect=True)
def test_characters_that_a_column_cannot_have_refuse_only_their_row(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(9) PRIMARY KEY, title VARCHAR(9)) CHARACTER SET utf8mb3")
    rows = [{"url": "a", "title": "\U0001f3d5"}, {"url": "\U0001f3d5"}, {"url": "c", "title": "Zürich"}]
    assert told(write(place, rows)) == [("a", "title"), ("\U0001f3d5", "url")]
    assert by_url(server, place, "title") == {"c": "Zürich"}


def test_rows_that_another_table_refers_to_and_that_cannot_be_deleted_are_refused(
    server: SqlServer, place: str
) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(9) UNIQUE, page VARCHAR(9) UNIQUE, n INTEGER)")
    server.execute(place, "CREATE TABLE other (page VARCHAR(9), FOREIGN KEY (page) REFERENCES t (page))")
    table = StoreTable("t", ("url",), parent="page")
    write(place, [{"url": "a", "page": "p", "n": 1}, {"url": "b", "page": "q", "n": 1}], table=table)
    server.execute(place, "INSERT INTO other VALUES ('p')")
    newer = [{"url": "a", "page": "p", "n": 2}, {"url": "b", "page": "q", "n": 2}, {"url": "c", "n": 2}]
    refused = write(place, newer, table=table)
    assert told(refused) == [("a", "page")]
    assert "foreign key" in refused[0].reason
    assert by_url(server, place, "n") == {"a": 1, "b": 2, "c": 2}


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_row_that_is_too_large_for_a_message_is_refused(server: SqlServer, place: str) -> None:
    store = open_store(StoreAddress.parse(place))
    store.max_row_bytes = 2_000_000  # type: ignore[attr-defined]
    rows = [{"url": "a", "n": 1}, {"url": "b", "n": 2, "body": "x" * 2_000_001}]
    refused = store.write(StoreTable("t", ("url",), {"url": "key"}), rows)
    store.close()
    assert told(refused) == [("b", "body")]
    assert "2,000,000 bytes" in refused[0].reason
    assert by_url(server, place, "n") == {"a": 1}


@pytest.mark.parametrize("server", ["postgresql"], indirect=True)
def test_a_row_that_a_policy_refuses_costs_no_other_row(server: SqlServer, place: str) -> None:
    server.execute(place, "CREATE TABLE t (url TEXT UNIQUE, n INTEGER)")
    server.execute(place, "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY above ON t USING (n > 0)")
    restricted = server.restricted(place, "ALL", "t")
    [refused] = write(restricted, [{"url": "a", "n": 1}, {"url": "b", "n": -1}, {"url": "c", "n": 2}])
    assert (refused.row["url"], "row-level security" in refused.reason) == ("b", True)
    assert by_url(server, place, "n") == {"a": 1, "c": 2}


def test_a_table_that_another_program_has_locked_is_told_at_the_start_and_awaited_later(
    server: SqlServer, place: str
) -> None:
    server.execute(place, "CREATE TABLE t (url VARCHAR(9) UNIQUE)")
    store = open_store(StoreAddress.parse(place))
    with server.short_lock_timeout(place):
        with server.locked(place, "t"):
            with pytest.raises(SinkError):
                store.prepare(URLS)
            with pytest.raises(SinkError):
                store.write(URLS, [{"url": "a"}])
            with pytest.raises(BadInput, match="cannot be used"):
                check_outputs([server.at(place, "t", key="url")], tables=_ITEMS)
        assert store.write(URLS, [{"url": "a"}]) == []
    store.close()
    assert by_url(server, place, "url") == {"a": "a"}
