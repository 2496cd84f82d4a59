"""CSV, JSON and SQLite: cells keep their contents, columns are found, and a second write adds nothing twice."""

import asyncio
import csv
import errno
import io
import json
import os
import sqlite3
from contextlib import closing, suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.errors import BadInput, SinkError
from gossamer.model.record import Destination, ItemRecord, Output
from gossamer.sinks import spool
from gossamer.sinks.base import Fanout
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import JSONL_ZST, check_outputs, left_spool, open_sinks, open_spooled, write_empty
from gossamer.sinks.spool import SpooledSink, finish_local
from gossamer.sinks.tables import PAGE_COLUMNS, CsvFraming, CsvRows, TableOptions, build_json
from gossamer.storage.files import unfinished

ITEMS = TableOptions(has_items=True)


def item(fields, request_id="r1", url="https://a.test/"):
    record = ItemRecord(
        appid="a", crawlid="c", spiderid="s", request_id=request_id, attempt=0, url=url, attrs=None, timestamp="t",
        item=fields,
    )  # fmt: skip
    return Output(record=record)


async def write(folder, name, *batches, tables=ITEMS, records="auto"):
    """What one process of a crawl does."""
    sink = Fanout(open_sinks([Destination(str(folder / name), records)], spool_dir=folder / "spool", tables=tables))
    for batch in batches:
        await sink.write(batch)
    await sink.close()
    return folder / name


def table(path):
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.reader(stream, strict=True))


def rows_of(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@given(st.lists(st.lists(st.text(), min_size=1, max_size=4), min_size=1, max_size=4))
def test_cells_of_any_text_are_read_back_by_pythons_reader(rows):
    width = max(map(len, rows))
    rows = [[*row, *[""] * (width - len(row))] for row in rows]
    encoder = CsvRows([str(number) for number in range(width)], guard=False)
    text = b"".join(map(encoder.cells, rows)).decode()
    # Lone surrogates and NUL cannot be in such a file; a cell of whitespace alone is kept.
    expected = [[cell.replace("\0", "\ufffd") for cell in row] for row in rows]
    assert list(csv.reader(io.StringIO(text, newline=""), strict=True)) == expected


@given(st.lists(st.text(alphabet='a,"\n\r; ', max_size=9), min_size=1, max_size=5), st.data())
def test_a_torn_file_is_cut_after_its_last_whole_row(cells, data):
    encoder = CsvRows(["a", "b"], guard=False)
    rows = [encoder.cells([cell, cell]) for cell in cells]
    whole = b"".join(rows)
    size = data.draw(st.integers(0, len(whole)))
    ends = [0]
    for row in rows:
        ends.append(ends[-1] + len(row))
    with closing_fd(whole[:size]) as fd:
        assert CsvFraming().tail(fd, 0, size, verify=True).end == max(end for end in ends if end <= size)
        assert CsvFraming().count(fd, 0, size) == sum(end <= size for end in ends[1:])


class closing_fd:  # noqa: N801
    """A file with these contents, as a descriptor."""

    def __init__(self, content):
        self.fd = os.memfd_create("test")
        os.write(self.fd, content)

    def __enter__(self):
        return self.fd

    def __exit__(self, *error):
        os.close(self.fd)


def test_a_quote_at_the_end_of_a_piece_is_no_end_of_a_row(monkeypatch):
    """Pieces are read from the file; a cell that is longer than a piece hides its newlines in all of them."""
    cell = ("x" * 50 + '"\n') * 5000
    row = CsvRows(["a"], guard=False).cells([cell])
    with closing_fd(b"a\n" + row + row[: len(row) // 2]) as fd:
        size = 2 + len(row) + len(row) // 2
        assert CsvFraming().tail(fd, 0, size, verify=True).end == 2 + len(row)


async def test_columns_are_the_fields_of_all_items_in_the_order_of_their_appearance(tmp_path):
    path = await write(
        tmp_path, "a.csv", [item({"title": "A", "n": 1})], [item({"title": "B", "tags": ["x", "y"]}, "r2")]
    )
    assert table(path) == [
        ["page_url", "title", "n", "tags"],
        ["https://a.test/", "A", "1", ""],
        ["https://a.test/", "B", "", '["x","y"]'],
    ]
    await write(tmp_path, "a.csv", [item({"title": "C", "late": None, "deep": {"a": {"b": True}}}, "r3")])
    assert table(path)[0] == ["page_url", "title", "n", "tags", "late", "deep"]
    assert table(path)[1] == ["https://a.test/", "A", "1", "", "", ""]
    assert table(path)[3] == ["https://a.test/", "C", "", "", "", '{"a":{"b":true}}']


async def test_given_columns_are_kept_in_their_order_and_rows_are_there_at_once(tmp_path):
    options = TableOptions(has_items=True, columns=("page_url", "price", "title"))
    (sink,) = open_sinks([str(tmp_path / "a.csv")], spool_dir=tmp_path / "spool", tables=options)
    await sink.write([item({"page_url": "https://a.test/p", "title": "A"}), item({"price": 1.5}, "r2")])
    assert table(tmp_path / "a.csv") == [
        ["page_url", "price", "title"],
        ["https://a.test/p", "", "A"],
        ["https://a.test/", "1.5", ""],
    ]
    await sink.close()


async def test_a_guarded_cell_is_text_for_a_spreadsheet(tmp_path):
    hostile = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "＝1", 'a";=1']
    fields = {f"f{number}": value for number, value in enumerate(hostile)} | {"=name": -5, "plain": "x=1"}
    path = await write(tmp_path, "a.csv", [item(fields)], tables=TableOptions(has_items=True, csv_guard=True))
    header, row = table(path)
    assert row[1:9] == [f"'{value}" for value in hostile[:8]]
    assert row[9:] == ['a";=1', "-5", "x=1"]  # a number is no text
    assert "'=name" in header
    assert '"a"";=1"' in path.read_text()  # quotes keep a semicolon from beginning a cell


async def test_a_guarded_file_stays_guarded_when_it_gets_more_columns(tmp_path):
    tables = TableOptions(has_items=True, csv_guard=True)
    await write(tmp_path, "a.csv", [item({"=name": "a;=1", "n": -5, "t": "-5"})], tables=tables)
    path = await write(tmp_path, "a.csv", [item({"=name": "b", "late": "=1"}, "r2")], tables=tables)
    assert path.read_text().splitlines() == [
        """"page_url","'=name","n","t","late\"""",
        """"https://a.test/","a;=1",-5,"'-5",""",
        """"https://a.test/","b",,,"'=1\"""",
    ]


async def test_a_guarded_file_with_a_column_like_a_formula_is_continued(tmp_path):
    tables = TableOptions(has_items=True, columns=("page_url", "+name"), csv_guard=True)
    path = await write(tmp_path, "a.csv", [item({"+name": "a"})], tables=tables)
    check_outputs([str(path)], tables=tables)
    await write(tmp_path, "a.csv", [item({"+name": "b"}, "r2")], tables=tables)
    assert [row[1] for row in table(path)] == ["'+name", "a", "b"]


async def test_json_is_one_array_of_items_and_grows(tmp_path):
    path = await write(tmp_path, "a.json", [item({"title": "Grüße"}), item({"title": "B"}, "r2")])
    assert json.loads(path.read_text()) == [
        {"page_url": "https://a.test/", "title": "Grüße"},
        {"page_url": "https://a.test/", "title": "B"},
    ]
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))  # as another program writes it
    await write(tmp_path, "a.json", [item({"title": "C"}, "r3")])
    assert [one["title"] for one in json.loads(path.read_text())] == ["Grüße", "B", "C"]


@pytest.mark.parametrize("before", ["", "[]", "[ ]\n", "\ufeff[\n]\n"])
async def test_an_empty_array_is_continued(tmp_path, before):
    (tmp_path / "a.json").write_text(before, encoding="utf-8")
    path = await write(tmp_path, "a.json", [item({"title": "C"}, "r3")])
    assert [one["title"] for one in json.loads(path.read_text("utf-8-sig"))] == ["C"]


async def test_pages_and_items_in_json_keep_their_records(tmp_path, page):
    path = await write(tmp_path, "a.json", [page("r1"), item({"title": "A"})], records="all")
    assert [one["type"] for one in json.loads(path.read_text())] == ["page", "item"]


async def test_sqlite_has_a_table_of_pages_and_one_of_items(tmp_path, page):
    batch = [page("r1", links=[]), item({"title": "A", "n": 1, "tags": ["x"]}), item({"title": "B", "big": 2**70})]
    path = await write(tmp_path, "a.sqlite", batch, records="all")
    assert rows_of(path, "SELECT request_id, status_code, success, response_headers FROM pages") == [
        ("r1", 200, 1, '{"Content-Type":["text/html"]}')
    ]
    assert rows_of(path, "SELECT _request_id, _position, page_url, title, n, tags, big FROM items") == [
        ("r1", 0, "https://a.test/", "A", 1, '["x"]', None),
        ("r1", 1, "https://a.test/", "B", None, None, str(2**70)),
    ]


async def test_sqlite_written_again_changes_nothing_but_what_is_new(tmp_path, page):
    batch = [page("r1"), item({"n": 1}), item({"n": 2}), item({"n": 3})]
    path = await write(tmp_path, "a.sqlite", batch, batch, records="all")
    await write(tmp_path, "a.sqlite", [page("r1", status_code=404), item({"n": 4})], records="all")
    assert rows_of(path, "SELECT count(*), max(status_code) FROM pages") == [(1, 404)]
    assert rows_of(path, "SELECT _position, n FROM items") == [(0, 4)]


async def test_fields_that_can_have_no_column_are_kept_beside(tmp_path):
    fields = {"Title": 1, "title": 2, "_position": 3, "": 4, "other_fields": 5, 'q"uote': 6}
    path = await write(tmp_path, "a.sqlite", [item(fields)])
    ((title, quote, others),) = rows_of(path, 'SELECT "Title", "q""uote", other_fields FROM items')
    assert (title, quote) == (1, 6)
    assert json.loads(others)["title"] == 2
    assert {3, 4, 5} <= set(flat(json.loads(others)))


def flat(value):
    return [leaf for one in value.values() for leaf in (flat(one) if isinstance(one, dict) else [one])]


@pytest.mark.parametrize("name", ["a.csv", "a.sqlite"])
async def test_thousands_of_different_fields_end_in_one_column(tmp_path, name):
    batches = [[item({f"f{number}": number}, f"r{number}")] for number in range(1200)]
    path = await write(tmp_path, name, [output for batch in batches for output in batch])
    if name == "a.sqlite":
        found = [
            json.loads(text) for (text,) in rows_of(path, "SELECT other_fields FROM items WHERE other_fields != ''")
        ]
    else:
        header, *rows = table(path)
        found = [json.loads(row[header.index("other_fields")]) for row in rows if row[header.index("other_fields")]]
    assert {"f1199": 1199} in found
    assert 200 < len(found) < 400


async def test_an_output_takes_the_records_that_it_is_told_to_take(tmp_path, page):
    batch = [page("r1"), item({"n": 1}), page("r2")]
    items = await write(tmp_path, "items.csv", batch)
    pages = await write(tmp_path, "pages.csv", batch, records="pages")
    lines = await write(tmp_path, "items.jsonl", batch, records="items")
    both = await write(tmp_path, "all.jsonl", batch)
    assert table(items) == [["page_url", "n"], ["https://a.test/", "1"]]
    assert [row[PAGE_COLUMNS.index("request_id")] for row in table(pages)] == ["request_id", "r1", "r2"]
    assert [json.loads(line)["type"] for line in lines.read_text().splitlines()] == ["item"]
    assert len(both.read_text().splitlines()) == 3


async def test_a_table_takes_pages_if_the_crawl_has_no_items(tmp_path, page):
    path = await write(tmp_path, "a.csv", [page("r1")], tables=TableOptions())
    assert table(path)[0] == list(PAGE_COLUMNS)
    assert len(table(path)) == 2


def test_files_of_another_shape_are_refused(tmp_path):
    refused = {
        "other.csv": "a,b\n1,2\n",
        "object.json": '{"a": 1}',
        "torn.json": '[{"a": 1}',
        "text.sqlite": "a,b\n",
    }
    for name, content in refused.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(BadInput, match="name another file"):
            check_outputs([str(tmp_path / name)], tables=ITEMS)
    with closing(sqlite3.connect(tmp_path / "mine.sqlite")) as connection:
        connection.execute("CREATE TABLE items (name)")
    with pytest.raises(BadInput, match="another table items"):
        check_outputs([str(tmp_path / "mine.sqlite")], tables=ITEMS)
    with pytest.raises(BadInput, match="both pages and items"):
        check_outputs([Destination(str(tmp_path / "a.csv"), "all")])


async def test_a_file_with_other_columns_is_refused_before_the_crawl(tmp_path):
    options = TableOptions(has_items=True, columns=("page_url", "title"))
    path = await write(tmp_path, "a.csv", [item({"title": "A"})], tables=options)
    check_outputs([str(path)], tables=options)
    with pytest.raises(BadInput, match="other columns"):
        check_outputs([str(path)], tables=TableOptions(has_items=True, columns=("page_url", "price")))
    with pytest.raises(BadInput, match="other columns"):
        check_outputs([str(path)], tables=TableOptions())


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
async def test_a_spool_that_was_built_before_a_crash_is_not_built_again(tmp_path, name):
    """Also if its records look like those of an earlier crawl."""
    (sink,) = open_sinks([str(tmp_path / name)], spool_dir=tmp_path / "spool", tables=ITEMS)
    await sink.write([item({"n": 1})])
    (spool,) = (tmp_path / "spool").rglob("spool.*")
    kept = spool.read_bytes()
    await sink.close()
    spool.write_bytes(kept)  # as if the process had died between the two steps
    path = await write(tmp_path, name)
    assert path.read_text().count("https://a.test/") == 1
    await write(tmp_path, name, [item({"n": 1}, "r2")])
    assert path.read_text().count("https://a.test/") == 2


async def test_crawls_that_end_together_lose_no_records_of_a_built_file(tmp_path):
    """The second begins to build while the first does."""
    target, build = tmp_path / "a.json", build_json("items")
    loop = asyncio.get_running_loop()

    def held_up(existing, spool, out):
        ending.append(asyncio.run_coroutine_threadsafe(second.close(), loop))
        with suppress(TimeoutError):
            ending[0].result(timeout=0.3)  # it waits now; if it did not, it would be done
        return build(existing, spool, out)

    ending = []
    first = SpooledSink("a.json", tmp_path / "first", JSONL_ZST, partial(finish_local, target, held_up))
    second = SpooledSink("a.json", tmp_path / "second", JSONL_ZST, partial(finish_local, target, build))
    await first.write([item({"n": 1})])
    await second.write([item({"n": 2}, "r2")])
    await first.close()
    await asyncio.wrap_future(ending[0])
    assert [element["n"] for element in json.loads(target.read_text())] == [1, 2]
    assert list(tmp_path.glob(".*")) == []


async def test_a_sink_that_waits_for_another_command_says_so_and_can_be_interrupted(tmp_path, monkeypatch):
    target, said = tmp_path / "a.json", asyncio.get_running_loop().create_future()
    monkeypatch.setattr(spool, "_SILENT_SECONDS", 0.0)
    monkeypatch.setattr(spool.log, "error", lambda *words: said.set_result(words))
    sink = SpooledSink("a.json", tmp_path / "own", JSONL_ZST, partial(finish_local, target, build_json("items")))
    await sink.write([item({"n": 1})])
    with unfinished(target):
        waiting = asyncio.create_task(sink.close())
        assert "a.json" in await asyncio.wait_for(said, 10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 10)
    await sink.close()
    assert [element["n"] for element in json.loads(target.read_text())] == [1]


async def test_no_empty_file_takes_the_place_of_one_that_another_command_writes(tmp_path):
    with unfinished(tmp_path / "a.json"):
        assert not write_empty(str(tmp_path / "a.json"), ITEMS, spool_dir=tmp_path / "spool")
    assert left_spool(str(tmp_path / "a.json"), spool_dir=tmp_path / "spool") is None


async def test_a_csv_file_is_built_from_its_spool_whatever_columns_the_rules_have_now(tmp_path):
    path, folder = str(tmp_path / "a.csv"), tmp_path / "spool"
    (sink,) = open_sinks([Destination(path, "items")], spool_dir=folder, tables=ITEMS)
    await sink.write([item({"n": 1, "old": 2})])
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(SinkError):
        await sink.close()
    (tmp_path / "a.csv").rmdir()
    await open_spooled(Destination(path, "items"), spool_dir=folder, csv_guard=False).close()
    assert table(tmp_path / "a.csv") == [["page_url", "n", "old"], ["https://a.test/", "1", "2"]]
    assert left_spool(path, spool_dir=folder) is None


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), SinkError("unreadable")])
async def test_a_build_that_fails_gives_its_room_back_and_keeps_the_spool(tmp_path, error):
    def broken(existing, spool, out):
        out.write_bytes(b"x" * 1000)
        raise error

    sink = SpooledSink("a.json", tmp_path / "own", JSONL_ZST, partial(finish_local, tmp_path / "a.json", broken))
    await sink.write([item({"n": 1})])
    with pytest.raises(SinkError, match="its records are safe"):
        await sink.close()
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert len(list(read_records(sink.spool))) == 1


async def test_an_sqlite_file_that_was_moved_is_made_anew(tmp_path):
    (sink,) = open_sinks([str(tmp_path / "a.sqlite")], spool_dir=tmp_path / "spool", tables=ITEMS)
    await sink.write([item({"n": 1})])
    (tmp_path / "a.sqlite").rename(tmp_path / "old.sqlite")
    await sink.write([item({"n": 2}, "r2")])
    await sink.close()
    assert rows_of(tmp_path / "old.sqlite", "SELECT n FROM items") == [(1,)]
    assert rows_of(tmp_path / "a.sqlite", "SELECT n FROM items") == [(2,)]
