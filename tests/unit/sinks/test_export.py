"""Exports: every format becomes every other, and what is lost is said with its count."""

import csv
import gzip
import json
import shutil
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from gossamer.errors import BadInput
from gossamer.model.content import PageContent
from gossamer.model.json_codec import encode_lines
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.export import Exported, ExportOptions, export_file
from gossamer.sinks.jsonl import read_records
from gossamer.sinks.open import ENDINGS, ending_of
from gossamer.sinks.read import Source
from gossamer.sinks.sqlite import build_sqlite

CARRIES_ALL = [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz", ".parquet", ".sqlite", ".db", ".sqlite3"]
HOSTILE = 'Grüße,\r\n"quoted"\n=1+1\x00 {"a": \u2028 [😀]'


def item(number: int, fields: dict) -> ItemRecord:
    return ItemRecord(
        appid="a", crawlid="c", spiderid="s", request_id=f"r{number}", attempt=1, url=f"https://a.test/{number}",
        attrs={"k": [1]}, timestamp="t", item=fields,
    )  # fmt: skip


@pytest.fixture
def records(page) -> list:
    """Pages and items as hostile and as different as they come."""
    return [
        page("r1", body=HOSTILE, url="https://a.test/1", response_url="https://a.test/x?q=1#f").record,
        item(1, {"page_url": "https://a.test/1", "title": HOSTILE, "price": 9.5, "tags": ["x", {"y": None}], "n": 3}),
        item(1, {"page_url": "https://a.test/1", "title": "second", "price": None, "tags": [], "n": -(2**40)}),
        page("r2", body="AAEC", body_encoding="base64", encoding="", links=[], truncated=True).record,
        page("r3", status_code=404, status_msg="Not Found", success=False, reason="http_404", body="nein").record,
        page(
            "r4", status_code=0, status_msg="", success=False, reason="dns", exception="x\ny", body="", encoding="",
            response_headers={}, request_headers={}, ip="", timings={},
        ).record,
        page("r5", body="schön", encoding="iso-8859-1", attrs={"deep": {"x": [1, 2]}},
             content=PageContent(title="T", text="a\nb")).record,
    ]  # fmt: skip


def written(path: Path, records: list) -> Path:
    path.write_bytes(encode_lines(records))
    return path


def export(source: Path, target: Path, **options) -> Exported:
    return export_file(Source(source), target, ending_of(str(target)), ExportOptions(**options), replace=False)


def in_table_order(records: list) -> list:
    return [one for one in records if one.type == "page"] + [one for one in records if one.type == "item"]


@pytest.mark.parametrize("ending", CARRIES_ALL)
def test_a_format_that_carries_all_gives_all_back(tmp_path, records, ending):
    source = written(tmp_path / "a.jsonl", records)
    done = export(source, tmp_path / f"b{ending}")
    assert (done.pages, done.items) == (5, 2)
    back = export(tmp_path / f"b{ending}", tmp_path / "c.jsonl")
    assert (back.pages, back.items) == (5, 2)
    found = list(read_records(tmp_path / "c.jsonl"))
    expected = in_table_order(records) if ending in (".sqlite", ".db", ".sqlite3") else records
    if "warc" in ending:
        assert done.losses == [f"4 responses rebuilt from records: the exact bytes are not in {source}."]
    else:
        assert done.losses == back.losses == []
    assert [clean(one, ending) for one in found] == [clean(one, ending) for one in expected]


def clean(record, ending):
    """The record as the format holds it."""
    fields = msgspec.to_builtins(record)
    if ending in (".sqlite", ".db", ".sqlite3"):
        fields["url"] = ""  # of an item: that of its page_url
        if fields["type"] == "item":
            fields["item"] = {name: value for name, value in fields["item"].items() if value not in (None, [])}
    return fields


@pytest.mark.parametrize("first", ENDINGS)
@pytest.mark.parametrize("second", ENDINGS)
def test_any_format_becomes_any_other(tmp_path, records, first, second):
    written(tmp_path / "a.jsonl", records)
    export(tmp_path / "a.jsonl", tmp_path / f"b{first}")
    done = export(tmp_path / f"b{first}", tmp_path / f"c{second}")
    tables = {".csv", ".json"} & {first, second}
    assert (done.pages, done.items) == ((0, 2) if tables else (5, 2))
    again = list(Source(tmp_path / f"c{second}").outputs())
    titles = [one.record.item["title"] for one in again if isinstance(one.record, ItemRecord)]
    expected = HOSTILE.replace("\0", "\ufffd") if ".csv" in (first, second) else HOSTILE
    assert titles == [expected, "second"]


def test_pages_are_exported_where_there_are_no_items(tmp_path, records):
    pages = [one for one in records if isinstance(one, PageRecord)]
    written(tmp_path / "a.jsonl", pages)
    done = export(tmp_path / "a.jsonl", tmp_path / "b.csv")
    assert done.losses == ["4 pages without the body: a CSV file has none."]
    with (tmp_path / "b.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["status_code"] for row in rows] == ["200", "200", "404", "0", "200"]
    back = export(tmp_path / "b.csv", tmp_path / "c.jsonl")
    assert back.losses == [f"3 pages without the body, which is not in {tmp_path / 'b.csv'}."]
    for before, after in zip(pages, read_records(tmp_path / "c.jsonl"), strict=True):
        without = {"body": "", "body_encoding": "text"}
        assert msgspec.to_builtins(after) == msgspec.to_builtins(before) | without


def test_records_that_are_left_out_are_counted(tmp_path, records):
    written(tmp_path / "a.jsonl", records)
    done = export(tmp_path / "a.jsonl", tmp_path / "items.csv")
    assert done.losses[0] == "5 pages left out: this file has items only."
    assert "2 items without the fields of their records" in done.losses[1]
    done = export(tmp_path / "a.jsonl", tmp_path / "pages.json", records="pages")
    assert done.losses == []  # it was asked for
    assert [one["request_id"] for one in json.loads((tmp_path / "pages.json").read_text())] == [
        "r1",
        "r2",
        "r3",
        "r4",
        "r5",
    ]
    done = export(tmp_path / "a.jsonl", tmp_path / "both.json", records="all")
    assert (done.pages, done.items, done.losses) == (5, 2, [])
    assert list(map(clean_all, Source(tmp_path / "both.json").outputs())) == list(map(msgspec.to_builtins, records))


def clean_all(output):
    return msgspec.to_builtins(output.record)


def test_items_of_a_table_have_text_for_numbers(tmp_path, records):
    written(tmp_path / "a.jsonl", records)
    export(tmp_path / "a.jsonl", tmp_path / "b.csv")
    done = export(tmp_path / "b.csv", tmp_path / "c.json")
    assert any("2 items with text for numbers" in sentence for sentence in done.losses)
    first = json.loads((tmp_path / "c.json").read_text())[0]
    assert (first["price"], first["tags"]) == ("9.5", ["x", {"y": None}])


def test_items_of_sqlite_have_numbers_for_true_and_false(tmp_path):
    written(tmp_path / "a.jsonl", [item(1, {"page_url": "u", "new": True}), item(2, {"page_url": "u", "n": 1})])
    done = export(tmp_path / "a.jsonl", tmp_path / "b.sqlite")
    assert done.losses == ["1 item with 1 and 0 for true and false: SQLite has no such type."]
    export(tmp_path / "b.sqlite", tmp_path / "c.json")
    assert [one["new"] for one in json.loads((tmp_path / "c.json").read_text())] == [1, None]


def test_texts_of_sqlite_are_kept_or_counted(tmp_path):
    written(tmp_path / "a.jsonl", [item(1, {"page_url": "u", "a": "", "b": "[b]"}), item(2, {"a": "[1]", "b": None})])
    done = export(tmp_path / "a.jsonl", tmp_path / "b.sqlite")
    assert done.losses == ["1 item with text that is read as an array or object: SQLite has no such types."]
    found = [one.record.item for one in Source(tmp_path / "b.sqlite").outputs()]
    assert [(one["a"], one["b"]) for one in found] == [("", "[b]"), ([1], None)]


@pytest.mark.parametrize("guard", [True, False])
def test_the_quotes_of_a_guarded_table_go_into_no_other_file(tmp_path, page, guard):
    fields = {"page_url": "u", "-x": "=1", "quote": "it's", "n": "-2"}
    written(tmp_path / "a.jsonl", [item(1, fields), page("r1", url="=u").record])
    for kind in ("items", "pages"):
        export(tmp_path / "a.jsonl", tmp_path / f"{kind}.csv", csv_guard=guard, records=kind)
        assert ("'=" in (tmp_path / f"{kind}.csv").read_text()) is guard
    [found] = Source(tmp_path / "items.csv").outputs()
    assert found.record.item == fields
    [found] = Source(tmp_path / "pages.csv").outputs()
    assert found.record.url == "=u"


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".warc", ".warc.gz"])
def test_the_torn_end_of_a_killed_crawl_is_left_out_and_said(tmp_path, records, ending):
    written(tmp_path / "a.jsonl", records)
    export(tmp_path / "a.jsonl", tmp_path / f"b{ending}")
    whole = (tmp_path / f"b{ending}").read_bytes()
    (tmp_path / f"b{ending}").write_bytes(whole + whole[: len(whole) // 2][:-7])
    done = export(tmp_path / f"b{ending}", tmp_path / "c.jsonl")
    assert any("is left out: a record that is not written completely" in sentence for sentence in done.losses)
    assert done.pages >= 5


def test_the_contents_decide_where_the_name_says_nothing(tmp_path, records):
    written(tmp_path / "a.jsonl", records)
    for ending in ENDINGS:
        export(tmp_path / "a.jsonl", tmp_path / f"b{ending}")
        (tmp_path / f"b{ending}").rename(tmp_path / "dump")
        assert sum(1 for _ in Source(tmp_path / "dump").outputs()) in (2, 7)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"title": "not ours"}\n', "line 1: not a record of a crawl"),
        ("a.jsonl", b'{"type":"page"}\n\n', "line 1"),
        ("a.json", b'{"a": 1}', "not a JSON array"),
        ("a.json", b'[{"a": 1}', "torn"),
        ("a.json", b"[1, 2]", "not an object"),
        ("a.sqlite", b"nothing", "not a SQLite file"),
        ("a.parquet", b"nothing", "a.parquet"),
        ("a.warc", b"nothing", "a.warc"),
        ("a.jsonl.gz", b"\x1f\x8bnothing", "a.jsonl"),
        ("a.csv", b"\xff\xfe,\n\xff,\n", "a.csv"),
        ("a.csv", b"url,request_id,status_code,success\nu,r,many,true\n", "a.csv: invalid literal"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_written(tmp_path, name, content, said):
    (tmp_path / name).write_bytes(content)
    try:
        done = export(tmp_path / name, tmp_path / "b.jsonl")
    except BadInput as error:
        assert said in str(error)  # noqa: PT017
        assert not (tmp_path / "b.jsonl").exists()
        assert not list(tmp_path.glob(".*"))
    else:
        assert (done.pages, done.items) == (0, 0)
        assert done.losses


@pytest.mark.parametrize("block", [b'{"type": "page"}', b'{"type": "item", "url": 1}', b"{", b"\xff"])
def test_metadata_of_another_program_is_no_page_of_ours(tmp_path, block):
    head = b"WARC/1.0\r\nWARC-Type: metadata\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    (tmp_path / "a.warc").write_bytes(head % len(block) + block + b"\r\n\r\n")
    assert export(tmp_path / "a.warc", tmp_path / "b.jsonl").pages == 0


def test_requests_of_another_program_are_not_kept_in_memory(tmp_path):
    head = b"WARC/1.0\r\nWARC-Type: request\r\nWARC-Record-ID: <urn:%d>\r\nContent-Length: %d\r\n\r\n"
    block = bytes(100_000)
    (tmp_path / "a.warc").write_bytes(b"".join(head % (n, len(block)) + block + b"\r\n\r\n" for n in range(300)))
    tracemalloc.start()
    assert list(Source(tmp_path / "a.warc").outputs()) == []
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15_000_000


def test_an_archive_of_another_program_has_no_pages_of_ours(tmp_path):
    record = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:%d>\r\nWARC-Target-URI: http://a.test/\r\n"
    record += b"Content-Type: application/http; msgtype=response\r\nContent-Length: 20\r\n\r\n"
    record += b"HTTP/1.0 200 OK\r\n\r\nx\r\n\r\n"
    (tmp_path / "a.warc.gz").write_bytes(b"".join(gzip.compress(record % number) for number in range(100)))
    done = export(tmp_path / "a.warc.gz", tmp_path / "b.jsonl")
    assert done.pages == 0
    assert done.losses == [f"100 responses left out: another program wrote them into {tmp_path / 'a.warc.gz'}."]


def test_an_existing_file_and_the_input_itself_are_kept(tmp_path, records):
    written(tmp_path / "a.jsonl", records)
    before = (tmp_path / "a.jsonl").read_bytes()
    with pytest.raises(BadInput, match="is the input"):
        export_file(Source(tmp_path / "a.jsonl"), tmp_path / "a.jsonl", ".jsonl", ExportOptions(), replace=True)
    (tmp_path / "b.csv").write_text("mine")
    with pytest.raises(BadInput, match="replace it with -f"):
        export(tmp_path / "a.jsonl", tmp_path / "b.csv")
    with pytest.raises(BadInput, match="both pages and items"):
        export(tmp_path / "a.jsonl", tmp_path / "c.csv", records="all")
    assert (tmp_path / "a.jsonl").read_bytes() == before
    assert (tmp_path / "b.csv").read_text() == "mine"
    with pytest.raises(BadInput, match="replace it with -f"):  # it is made while the export runs
        export(tmp_path / "a.jsonl", tmp_path / "d.csv", on_progress=lambda _: (tmp_path / "d.csv").write_text("mine"))
    assert (tmp_path / "d.csv").read_text() == "mine"


def killed_within_a_transaction(path: Path) -> None:
    """Leave a database and its journal as a killed writer leaves them."""
    writing = path.with_name(f"writing-{path.name}")
    with closing(sqlite3.connect(writing, isolation_level=None)) as connection:
        connection.execute("PRAGMA cache_size = 1")  # so that it writes pages before the end of the transaction
        connection.execute("CREATE TABLE pages (request_id PRIMARY KEY, body)")
        connection.executemany("INSERT INTO pages VALUES (?, ?)", ((number, "x" * 300) for number in range(400)))
        connection.execute("BEGIN")
        connection.execute("UPDATE pages SET request_id = -request_id, body = hex(zeroblob(500))")
        for ending in ("", "-journal"):
            shutil.copy(f"{writing}{ending}", f"{path}{ending}")


def numbers_in(path: Path) -> list:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return [n for (n,) in connection.execute("SELECT n FROM items ORDER BY n")]


def test_what_a_killed_writer_left_is_not_taken_back_in_the_file_that_replaces_its_own(tmp_path):
    target, out, existing, spool = (tmp_path / name for name in ("shop.sqlite", "out", "existing", "spool.jsonl"))
    source = Source(written(spool, [item(number, {"n": number}) for number in range(500)]))
    killed_within_a_transaction(target)
    export_file(source, target, ".sqlite", ExportOptions(), replace=True)
    assert numbers_in(target) == list(range(500))
    killed_within_a_transaction(out)
    shutil.copy(target, existing)  # the remote file, fetched by the next command
    build_sqlite("items", (), existing, written(spool, [item(500, {"n": 500})]), out)
    assert numbers_in(out) == list(range(501))


@pytest.mark.parametrize("ending", [".jsonl", ".sqlite"])
def test_a_file_that_another_export_writes_is_not_written(tmp_path, records, ending):
    source, target = written(tmp_path / "a.jsonl", records), tmp_path / f"out{ending}"

    def meet(_: int) -> None:
        with pytest.raises(BadInput, match="is being written by another command"):
            export(source, target)

    export(source, target, on_progress=meet)
    assert len(list(Source(target).outputs())) == len(records)
    assert {path.name for path in tmp_path.iterdir()} == {source.name, target.name}


def test_a_large_array_is_read_in_pieces(tmp_path, monkeypatch):
    elements = [{"page_url": "u", "text": "x" * 70_000, "n": number} for number in range(60)]
    (tmp_path / "a.json").write_text(json.dumps(elements, indent=2))
    assert [one.record.item["n"] for one in Source(tmp_path / "a.json").outputs()] == list(range(60))
