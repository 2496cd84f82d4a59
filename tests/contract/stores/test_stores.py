"""Every store keeps the same promises, on its real server."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gossamer.errors import BadInput, SinkError, SinkFull
from gossamer.model.record import ItemRecord, Output, PageRecord
from gossamer.sinks.open import check_outputs, open_sinks
from gossamer.sinks.stores.address import StoreAddress
from gossamer.sinks.stores.rows import StoreTable, items_table
from gossamer.sinks.stores.sink import StoreSink, open_store
from gossamer.sinks.tables import TableOptions
from tests.servers.stores import KINDS, TYPED, StoreServer, store_server, unique

pytestmark = pytest.mark.timeout(400)  # on a busy machine, a server may take minutes to start
_ITEMS = TableOptions(has_items=True)


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[StoreServer]:
    with store_server(request.param) as started:
        yield started


@pytest.fixture
def place(server: StoreServer) -> str:
    """Address of an empty place."""
    return server.address()


def page(request_id: str, **fields: Any) -> PageRecord:
    url = f"https://a.test/{request_id}"
    values: dict[str, Any] = {
        "appid": "cli", "crawlid": "c", "spiderid": "link", "request_id": request_id, "attempt": 0, "depth": 1,
        "url": url, "response_url": url, "status_code": 200, "status_msg": "OK",
        "response_headers": {"Server": ["a", "b"]}, "request_headers": {}, "body": "<p>Grüße 🙂</p>",
        "body_encoding": "text", "encoding": "utf-8", "content_type": "text/html", "links": [], "attrs": {"n": 7},
        "timestamp": "2026-01-02T03:04:05.25+00:00", "success": True, "reason": "", "exception": "", "redirects": [],
        "timings": {"total": 0.5}, "ip": "192.0.2.1", "truncated": False,
    }  # fmt: skip
    return PageRecord(**values | fields)


def item(request_id: str, fields: dict[str, Any], **others: Any) -> ItemRecord:
    values: dict[str, Any] = {
        "appid": "cli", "crawlid": "c", "spiderid": "s", "request_id": request_id, "attempt": 0,
        "url": f"https://a.test/{request_id}", "attrs": None, "timestamp": "2026-01-02T03:04:05Z",
    }  # fmt: skip
    return ItemRecord(**values | others, item=fields)


def sink(address: str, kind: Any, folder: Path) -> StoreSink:
    return StoreSink(StoreAddress.parse(address), kind, folder, None)


def refused(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]


def test_pages_and_items_have_their_tables_and_all_their_fields(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    output = sink(place, "all", tmp_path)
    odd = {
        "title": "Ein “Zelt”, it's \\ 100% \U0001f3d5", "price": 12.5, "count": 3, "is_new": True, "tags": ["a", "ö"],
        "size": {"w": 1}, "nothing": None, "nul": "a\0b", "lone": "x\ud800", "other name": "1", "quote\"`'": "2",
        "odd text": "\x01\f\b\n\r\t\x1a\x7f\\u0041\\f\\'\"`%s\u2028", "path": "C:\\users\\f", "tail": "\\",
    }  # fmt: skip
    output.add([page("r1"), item("r1", odd), item("r1", {"title": "2"}), page("r2", success=False, body="")])
    output.disconnect()
    pages = {row["request_id"]: row for row in server.rows(place, "pages")}
    assert pages.keys() == {"r1", "r2"}
    first = pages["r1"]
    assert first["body"] == "<p>Grüße 🙂</p>"
    assert first["response_headers"] == {"Server": ["a", "b"]}
    assert first["attrs"] == {"n": 7}
    assert first["status_code"] == 200
    assert first["success"] in (True, 1)
    assert first["timestamp"][:19] == "2026-01-02T03:04:05"
    items = {row["_position"]: row for row in server.rows(place, "items")}
    assert items.keys() == {0, 1}
    kept = items[0]
    assert kept["title"] == odd["title"]
    assert (kept["price"], kept["count"], kept["is_new"]) == (12.5, 3, True)
    assert (kept["tags"], kept["size"]) == (["a", "ö"], {"w": 1})
    assert (kept["other name"], kept["quote\"`'"]) == ("1", "2")
    assert (kept["odd text"], kept["path"], kept["tail"]) == (odd["odd text"], odd["path"], odd["tail"])
    assert kept["lone"] == "x\ufffd"
    assert kept["nul"] in ("a\0b", "a\ufffdb")
    assert kept["page_url"] == "https://a.test/r1"
    assert kept["_crawlid"] == "c"
    assert "nothing" not in kept
    assert not refused(tmp_path)


def test_a_repeat_changes_nothing_and_a_later_fetch_replaces_the_items(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    output = sink(place, "items", tmp_path)
    batch = [item("r1", {"n": 1}), item("r1", {"n": 2}), item("r1", {"n": 3}), item("r2", {"n": 4})]
    for _ in range(3):
        output.add(batch)
    assert sorted(row["n"] for row in server.rows(place, "items")) == [1, 2, 3, 4]
    output.add([item("r1", {"n": 8}), item("r1", {"n": 9})])  # given back by its worker, and fetched again
    output.disconnect()
    assert sorted(row["n"] for row in server.rows(place, "items")) == [4, 8, 9]
    output.add([item("r1", {"n": 9}, attempt=1)])
    output.disconnect()
    assert sorted(row["n"] for row in server.rows(place, "items")) == [4, 9]


def test_the_items_of_many_requests_are_replaced_at_once(server: StoreServer, place: str, tmp_path: Path) -> None:
    output = sink(place, "items", tmp_path)
    output.add([item(f"r{number // 2}", {"n": number}) for number in range(1200)])
    output.add([item(f"r{number}", {"n": -number}, attempt=1) for number in range(600)])
    output.disconnect()
    assert sorted(row["n"] for row in server.rows(place, "items")) == sorted(-number for number in range(600))


def test_with_a_key_a_newer_row_replaces_the_older_one(server: StoreServer, place: str, tmp_path: Path) -> None:
    table = unique("offers")
    output = sink(server.at(place, table, key="url"), "items", tmp_path)
    output.add([item("r1", {"url": "a", "price": 1}), item("r1", {"url": "b", "price": 2})])
    told = output.add(
        [item("r2", {"url": "a", "price": 3}), item("r3", {"url": "a", "price": 4}), item("r4", {"p": 1})]
    )
    output.disconnect()
    assert {row["url"]: row["price"] for row in server.rows(place, table)} == {"a": 4, "b": 2}
    [lacking] = refused(tmp_path)
    assert (lacking["field"], lacking["row"]["p"]) == ("url", 1)
    assert len(told) == 1


def test_a_row_of_a_later_crawl_keeps_no_field_of_the_row_that_it_replaces(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    address = server.at(place, unique("offers"), key="url")
    table = StoreAddress.parse(address).table
    for fields in ({"price": 1, "discount": 5, "tags": ["new"]}, {"price": 2}):
        output = sink(address, "items", tmp_path)  # like a process of its own: it has not written the other fields
        output.add([item("r", {"url": "a"} | fields)])
        output.disconnect()
    [row] = server.rows(place, table)
    assert row["price"] == 2
    assert not {"discount", "tags"} & row.keys()


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), Decimal("NaN")])
def test_a_key_that_is_no_finite_number_is_refused(server: StoreServer, place: str, value: Any, tmp_path: Path) -> None:
    table = unique("prices")
    output = sink(server.at(place, table, key="price"), "items", tmp_path)
    for _ in range(2):
        output.add([item("r1", {"price": value, "n": 1}), item("r2", {"price": 1.5, "n": 2})])
    output.disconnect()
    assert [row["n"] for row in server.rows(place, table)] == [2]
    assert {(one["field"], one["row"]["n"], "not a finite number" in one["reason"]) for one in refused(tmp_path)} == {
        ("price", 1, True)
    }


@pytest.mark.parametrize("server", TYPED, indirect=True)
def test_an_item_that_does_not_fit_goes_to_a_file_with_field_value_and_reason(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    output = sink(place, "items", tmp_path)
    output.add([item("r0", {"price": 1.5})])
    batch = [item(f"r{n}", {"price": "a lot" if n in (3, 7) else n}) for n in range(1, 12)]
    [(sentence, count)] = output.add(batch)
    output.disconnect()
    assert count == 2
    assert "price" in sentence
    assert "a lot" in sentence
    rows = {row["_request_id"] for row in server.rows(place, "items")}
    assert rows == {f"r{n}" for n in range(12)} - {"r3", "r7"}
    dead = refused(tmp_path)
    assert [(one["field"], one["value"]) for one in dead] == [("price", "a lot")] * 2
    assert all(one["reason"] and one["table"] == "items" for one in dead)
    assert {one["row"]["_request_id"] for one in dead} == {"r3", "r7"}


def test_large_records_and_batches_arrive(server: StoreServer, place: str, tmp_path: Path) -> None:
    output = sink(place, "pages", tmp_path)
    output.add([page(f"r{n}", body=f"{n}" + "é" * 400_000) for n in range(12)])
    assert {len(row["body"]) for row in server.rows(place, "pages")} == {400_001, 400_002}
    output.disconnect()


def test_keys_of_any_text_tell_rows_apart(server: StoreServer, place: str, tmp_path: Path) -> None:
    keys = ["a", "a ", "A", "á", "a\t", "'", "x" * 600, 10**5000]
    table = unique("odd")
    output = sink(server.at(place, table, key="k"), "items", tmp_path)
    for n in range(2):
        output.add([item(f"r{number}", {"k": key, "n": n}) for number, key in enumerate(keys)])
    output.disconnect()
    kept = {str(row["k"]): row["n"] for row in server.rows(place, table)}
    expected = {hex(key) if isinstance(key, int) else key: 1 for key in keys}
    too_long = {one["field"] for one in refused(tmp_path)}  # the integer: PostgreSQL and MySQL have limits for keys
    assert too_long <= {"k", ""}
    assert kept.items() <= expected.items()
    assert len(kept) == len(expected) - bool(too_long)


def test_a_killed_server_makes_writes_fail_until_it_is_back(server: StoreServer, place: str, tmp_path: Path) -> None:
    output = sink(place, "items", tmp_path)
    output.add([item("r1", {"n": 1})])
    server.kill()
    batch = [item("r2", {"n": 2}), item("r3", {"n": 3})]
    try:
        for _ in range(2):
            with pytest.raises(SinkError) as raised:
                output.add(batch)
            assert "s3cret" not in str(raised.value)
    finally:
        server.start()
    output.add(batch)
    output.disconnect()
    assert sorted(row["n"] for row in server.rows(place, "items")) == [1, 2, 3]


def test_many_writers_make_one_table_and_its_columns(server: StoreServer, place: str, tmp_path: Path) -> None:
    begin = threading.Barrier(4)

    def write(number: int) -> None:
        output = sink(place, "items", tmp_path)
        begin.wait(60)
        for batch in range(3):
            output.add([item(f"w{number}b{batch}r{n}", {f"f{batch}": n, "both": n}) for n in range(5)])
        output.disconnect()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(server.rows(place, "items")) == 60
    assert not refused(tmp_path)


def test_fields_beyond_the_columns_of_a_table_are_together_in_one(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    output = sink(place, "items", tmp_path)
    output.add([item("r1", {"Name": 1, "_position": "mine", "x" * 100: 5, "": 6})])
    output.disconnect()
    [row] = server.rows(place, "items")
    assert row["Name"] == 1
    assert row["_position"] == 0
    others = row["other_fields"]
    assert others["_position"] == "mine"
    assert others.get("", row.get("")) == 6
    assert others.get("x" * 100, row.get("x" * 100)) == 5


def test_rows_of_a_crawl_can_be_deleted(server: StoreServer, place: str, tmp_path: Path) -> None:
    address = StoreAddress.parse(place)
    store, table = open_store(address), items_table(address.table, ())
    store.delete_crawl(table, "c")  # there is no table
    output = sink(place, "items", tmp_path)
    output.add([item("r1", {"n": 1}), item("r2", {"n": 2}, crawlid="d")])
    output.disconnect()
    store.delete_crawl(table, "c")
    store.close()
    assert [row["n"] for row in server.rows(place, "items")] == [2]


def test_a_sink_of_a_crawl_takes_only_its_records(server: StoreServer, place: str, tmp_path: Path) -> None:
    async def write() -> None:
        check_outputs([place])
        [opened] = open_sinks([place], spool_dir=tmp_path / "spool")
        await opened.write([Output(record=page("r1")), Output(record=item("r1", {"n": 1}))])
        await opened.close()

    asyncio.run(write())
    assert len(server.rows(place, "pages")) == 1
    assert not (tmp_path / "spool").exists()


def test_a_server_that_is_not_there_is_told_in_one_line(server: StoreServer, place: str) -> None:
    address = place.replace(f":{StoreAddress.parse(place).port}", ":9") if server.kind != "postgresql" else (
        "postgresql://me:s3cret@127.0.0.1:9/x"
    )  # fmt: skip
    with pytest.raises(BadInput) as raised:
        check_outputs([address])
    message = str(raised.value)
    assert "s3cret" not in message
    assert "\n" not in message
    assert "refused" in message


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_a_wrong_password_or_database_is_told_in_one_line(server: StoreServer, place: str) -> None:
    wrong = [place.replace("s3cret", "0ther")] if server.kind == "mysql" else []
    database = StoreAddress.parse(place).database
    wrong.append(place.replace(f"/{database}", "/nowhere"))
    for address in wrong:
        with pytest.raises(BadInput) as raised:
            check_outputs([address])
        message = str(raised.value)
        assert "\n" not in message
        assert "s3cret" not in message
        assert "0ther" not in message
        assert "denied" in message or "nowhere" in message


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_a_table_of_other_columns_is_refused_and_one_of_the_users_own_is_filled(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    server.execute(place, "CREATE TABLE bare (name VARCHAR(30))")  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="_request_id"):
        check_outputs([f"{server.at(place, 'bare')}"], tables=_ITEMS)
    server.execute(place, "CREATE TABLE keyless (url VARCHAR(100))")  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="unique index on url"):
        check_outputs([server.at(place, "keyless", key="url")], tables=_ITEMS)
    server.execute(place, "CREATE TABLE own (url VARCHAR(100) PRIMARY KEY, title VARCHAR(5) NOT NULL, "
                          "seen TIMESTAMP DEFAULT CURRENT_TIMESTAMP)")  # type: ignore[attr-defined]  # fmt: skip
    address = server.at(place, "own", key="url")
    check_outputs([address], tables=_ITEMS)
    output = sink(address, "items", tmp_path)
    output.add([item("r1", {"url": "a", "title": "short"}), item("r2", {"url": "b", "title": "much too long"}),
                item("r3", {"url": "c"})])  # fmt: skip
    output.disconnect()
    [row] = server.rows(place, "own")
    assert (row["url"], row["title"], "seen" in row) == ("a", "short", True)
    assert {(one["field"], one["value"]) for one in refused(tmp_path)} == {("title", "much too long"), ("title", None)}


def test_a_store_takes_rows_of_any_table(server: StoreServer, place: str) -> None:
    table = StoreTable(unique("cities"), ("name",), {"name": "key"})
    store = open_store(StoreAddress.parse(place))
    assert not store.write(table, [{"name": "Ulm", "people": 126_000}, {"name": "Bonn", "people": 330_000}])
    assert not store.write(table, [{"name": "Ulm", "people": 127_000}])
    store.close()
    rows = {row["name"]: row["people"] for row in server.rows(place, table.name)}
    assert rows == {"Ulm": 127_000, "Bonn": 330_000}


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_values_of_any_type_are_stored_in_columns_of_any_type(server: StoreServer, place: str) -> None:
    statement = "CREATE TABLE mixed (k VARCHAR(9) PRIMARY KEY, t TEXT, d DOUBLE PRECISION, s TIMESTAMP NULL)"
    server.execute(place, statement)  # type: ignore[attr-defined]
    store = open_store(StoreAddress.parse(place))
    table = StoreTable("mixed", ("k",))
    values = [True, 7, 2.5, "x", ["a", True], {"b": None}, None, 2**53 + 1, "plain", "bell\a"]
    numbers = [7, 2.5, 2**53, None]
    time = "2026-01-02T03:04:05+02:00"
    rows = [{"k": f"t{number}", "t": value, "s": time} for number, value in enumerate(values)]
    rows += [{"k": f"d{number}", "d": value, "s": ""} for number, value in enumerate(numbers)]
    assert store.write(table, rows) == []
    store.close()
    stored = {row["k"]: row for row in server.rows(place, "mixed")}
    assert [stored[f"t{number}"].get("t") for number in range(len(values))] == [
        "true", "7", "2.5", "x", ["a", True], {"b": None}, None, str(2**53 + 1), "plain", "bell\a"
    ]  # fmt: skip
    assert [stored[f"d{number}"].get("d") for number in range(len(numbers))] == numbers
    assert stored["t0"]["s"].startswith("2026-01-02T01:04:05" if server.kind == "mysql" else "2026-01-02T03:04:05")
    assert "s" not in stored["d0"]


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_fields_of_any_name_are_stored(server: StoreServer, place: str, tmp_path: Path) -> None:
    names = ["xmin", "ctid", "discount %", "%s", "price ", "offer \U0001f3d5", "select", 7, None]
    output = sink(place, "items", tmp_path)
    for repetition in range(2):  # the first one makes the columns
        told = output.add([item(f"r{number}", {name: repetition}) for number, name in enumerate(names)])
        assert told == []
    output.disconnect()
    for row in server.rows(place, "items"):
        name = str(names[int(row["_request_id"][1:])])
        assert {**row, **row.get("other_fields", {})}[name] == 1


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_a_row_that_the_database_refuses_by_its_own_rules_costs_no_other_row(server: StoreServer, place: str) -> None:
    server.execute(place, "CREATE TABLE ruled (k INTEGER PRIMARY KEY, v INTEGER, s TIMESTAMP NULL)")  # type: ignore[attr-defined]
    below = "BEGIN IF NEW.v < 0 THEN RAISE EXCEPTION 'below'; END IF; RETURN NEW; END"
    action = "IF NEW.v < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'below'; END IF"
    if server.kind == "postgresql":
        server.execute(place, f"CREATE FUNCTION rule() RETURNS trigger LANGUAGE plpgsql AS $$ {below} $$")  # type: ignore[attr-defined]
        action = "EXECUTE FUNCTION rule()"
    server.execute(place, f"CREATE TRIGGER r BEFORE INSERT ON ruled FOR EACH ROW {action}")  # type: ignore[attr-defined]
    store = open_store(StoreAddress.parse(place))
    rows = [{"k": "1", "v": 1}, {"k": "2", "v": -1}, {"k": "3", "v": 3}, {"k": "03", "v": 4}]
    [refused] = store.write(StoreTable("ruled", ("k",)), rows)
    assert (refused.row["k"], "below" in refused.reason) == ("2", True)
    early = {"k": "5", "s": "0001-01-01T00:00:00+02:00"}
    assert len(store.write(StoreTable("ruled", ("k",)), [early, {"k": "6"}])) == (server.kind == "mysql")
    store.close()
    assert {1: 1, 3: 4, 6: None}.items() <= {row["k"]: row.get("v") for row in server.rows(place, "ruled")}.items()


@pytest.mark.parametrize("server", ["postgresql", "mysql"], indirect=True)
def test_a_key_that_cannot_tell_rows_apart_is_refused(server: StoreServer, place: str) -> None:
    columns = "url VARCHAR(9), UNIQUE (url(4))" if server.kind == "mysql" else "url TEXT UNIQUE DEFERRABLE"
    server.execute(place, f"CREATE TABLE half ({columns})")  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="unique index on url"):
        check_outputs([server.at(place, "half", key="url")], tables=_ITEMS)


@pytest.mark.parametrize("server", ["opensearch"], indirect=True)
def test_a_field_without_a_name_that_an_index_cannot_take_refuses_its_item(
    server: StoreServer, place: str, tmp_path: Path
) -> None:
    index = unique("older")
    # An index in which the fields of other_fields are fields of the index.
    server.server.call("PUT", index, {"mappings": {"properties": {"other_fields": {"type": "object"}}}})  # type: ignore[attr-defined]
    output = sink(server.at(place, index), "items", tmp_path)
    output.add([item("r1", {"n": 1, "": 2}), item("r2", {"n": 3})])
    output.disconnect()
    assert [row["n"] for row in server.rows(place, index)] == [3]
    [lost] = refused(tmp_path)
    assert lost["row"][""] == 2
    assert "name" in lost["reason"]


@pytest.mark.parametrize("server", ["opensearch"], indirect=True)
def test_an_alias_needs_a_write_index(server: StoreServer, place: str, tmp_path: Path) -> None:
    alias = unique("offers")
    call = server.server.call  # type: ignore[attr-defined]
    for number in (1, 2):
        call("PUT", f"{alias}-{number}", {"aliases": {alias: {}}})
    with pytest.raises(BadInput, match=f"{alias} is an alias without a write index.*{alias}-1, {alias}-2"):
        check_outputs([server.at(place, alias)], tables=_ITEMS)
    output = sink(server.at(place, alias), "items", tmp_path)
    with pytest.raises(SinkError, match="without a write index"):
        output.add([item("r1", {"n": 1})])
    action = {"add": {"index": f"{alias}-2", "alias": alias, "is_write_index": True}}
    call("POST", "_aliases", {"actions": [action]})
    check_outputs([server.at(place, alias)], tables=_ITEMS)
    assert output.add([item("r1", {"n": 1})]) == []
    output.disconnect()
    assert [row["n"] for row in server.rows(place, f"{alias}-2")] == [1]


@pytest.mark.parametrize("server", ["opensearch"], indirect=True)
def test_a_search_after_the_end_of_a_sink_finds_all_documents(server: StoreServer, place: str, tmp_path: Path) -> None:
    index, call = unique("unseen"), server.server.call  # type: ignore[attr-defined]
    call("PUT", index, {"settings": {"index.refresh_interval": "-1"}})  # by itself it shows no document to a search
    output = sink(server.at(place, index), "items", tmp_path)
    output.add([item("r1", {"n": 1}), item("r2", {"n": 2})])
    output.disconnect()
    assert call("GET", f"{index}/_search")["hits"]["total"]["value"] == 2


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_hash_of_redis_expires_after_its_last_write(server: StoreServer, place: str, tmp_path: Path) -> None:
    kept, expiring = unique("kept"), unique("expiring")
    for table, options in ((kept, {}), (expiring, {"expire": "500"})):
        output = sink(server.at(place, table, **options), "items", tmp_path)
        output.add([item("r1", {"n": 1})])
        output.disconnect()
    assert server.command("TTL", kept) == -1  # type: ignore[attr-defined]
    assert 400 < server.command("TTL", expiring) <= 500  # type: ignore[attr-defined]


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_key_of_another_type_and_a_server_that_deletes_keys_are_refused(server: StoreServer, place: str) -> None:
    command = server.command  # type: ignore[attr-defined]
    taken = unique("taken")
    command("SET", taken, "1")
    with pytest.raises(BadInput, match=f"the key {taken} exists and is a string, not a hash"):
        check_outputs([server.at(place, taken)], tables=_ITEMS)
    command("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", "allkeys-lru")
    try:
        with pytest.raises(BadInput, match="Set noeviction"):
            check_outputs([place], tables=_ITEMS)
    finally:
        command("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_a_full_server_makes_the_crawl_wait_for_room(server: StoreServer, place: str, tmp_path: Path) -> None:
    command = server.command  # type: ignore[attr-defined]
    output = sink(place, "items", tmp_path)
    command("CONFIG", "SET", "maxmemory", "1")
    try:
        with pytest.raises(SinkFull, match="maxmemory"):
            output.add([item("r1", {"n": 1})])
    finally:
        command("CONFIG", "SET", "maxmemory", "0")
    output.add([item("r1", {"n": 1})])
    output.disconnect()
    assert len(server.rows(place, "items")) == 1
