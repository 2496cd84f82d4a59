"""`gossamer text`: the content of pages from the records of a crawl, in any output, complete or not at all."""

import csv
import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from gossamer.extras import install_advice
from gossamer.model.json_codec import encode_lines
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.sinks.jsonl import read_records
from gossamer.storage.files import unfinished
from tests.servers.program import python

HEAD = "<html lang=en><head><title>Nr {0}</title></head>"
ARTICLE = HEAD + "<body><main><h1>Nr {0}</h1><p>" + "A long text. " * 30 + "</p></main></body></html>"
HUGE = "<html><body><main><table>" + ("<tr>" + "<td>cell</td>" * 60 + "</tr>") * 3000 + "</table></main></body></html>"


def page(number: int, body: str, **changed: Any) -> PageRecord:
    fields: dict[str, Any] = {
        "appid": "cli", "crawlid": "c", "spiderid": "link", "request_id": f"{number:032x}", "attempt": 0, "depth": 0,
        "url": f"http://a.test/{number}", "response_url": f"http://a.test/{number}", "status_code": 200,
        "status_msg": "OK", "response_headers": {}, "request_headers": {}, "body": body, "body_encoding": "text",
        "encoding": "utf-8", "content_type": "text/html", "links": [], "attrs": None, "timestamp": "", "success": True,
        "reason": "", "exception": "", "redirects": [], "timings": {}, "ip": "", "truncated": False,
    }  # fmt: skip
    return PageRecord(**fields | changed)


RECORDS = [
    *(page(number, ARTICLE.format(number)) for number in range(20)),
    page(20, HUGE),
    page(21, "not here", success=False, reason="http_404", status_code=404),
    page(22, "plain", content_type="text/plain"),
    page(23, "YQ==", body_encoding="base64", content_type="image/png"),
]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "pages.jsonl"
    path.write_bytes(encode_lines(RECORDS))
    return path


def text(folder: Path, *arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python(), "-m", "gossamer", "text", *arguments], cwd=folder, capture_output=True, text=True, timeout=100,
        env={"GOSSAMER_TEXT__CPU": "0.5", **environment},
    )  # fmt: skip


def test_pages_become_items_in_their_order(records: Path) -> None:
    done = text(records.parent, "pages.jsonl", "-o", "out.jsonl", "-o", "out.csv")
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "The content of 20 pages is in out.jsonl, out.csv.\n  without content: cpu_limit 1\n"
        "  1 failed page has no content\n  2 other records are no HTML pages\n"
    )
    found = list(read_records(records.parent / "out.jsonl"))
    assert all(isinstance(one, ItemRecord) for one in found)
    items = [one.item for one in found if isinstance(one, ItemRecord)]
    assert [item["page_url"] for item in items] == [f"http://a.test/{number}" for number in range(21)]
    assert items[3] | {"markdown": ""} == {
        "page_url": "http://a.test/3", "title": "Nr 3", "author": "", "date": "", "language": "en", "markdown": "",
    }  # fmt: skip
    assert items[3]["markdown"].startswith("# Nr 3\n\nA long text.")
    assert items[20] == {"page_url": "http://a.test/20", "error": "cpu_limit"}
    rows = list(csv.DictReader((records.parent / "out.csv").read_text().splitlines(keepends=True)))
    assert [row["title"] for row in rows] == [f"Nr {number}" for number in range(20)] + [""]


def test_records_are_copied_with_their_content(records: Path) -> None:
    assert text(records.parent, "pages.jsonl", "-o", "out.jsonl.zst", "--text", "--text-in", "records").returncode == 0
    found = list(read_records(records.parent / "out.jsonl.zst"))
    assert [one.url for one in found] == [one.url for one in RECORDS]
    assert found[5].content.text.startswith("Nr 5\n\nA long text.")
    assert found[20].content.error == "cpu_limit"
    assert [one.content for one in found[21:]] == [None] * 3


def test_chunks_go_to_standard_output(records: Path) -> None:
    done = text(records.parent, "pages.jsonl", "--chunk", "200", "-o", "-")
    chunks = [json.loads(line)["item"] for line in done.stdout.splitlines()]
    assert done.stderr.startswith("The content of 20 pages is in standard output.")
    assert all(len(chunk["markdown"]) <= 200 for chunk in chunks if "error" not in chunk)
    assert {chunk["chunks"] for chunk in chunks if "error" not in chunk} == {2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pages.jsonl"], "-o: no output is named. Write -o text.jsonl, for example."),
        (["none.jsonl", "-o", "out.jsonl"], "there is no file none.jsonl"),
        (["pages.jsonl", "-o", "pages.jsonl"], "-o: pages.jsonl is the input. Name another file."),
        (["pages.jsonl", "-o", "there.jsonl"], "-o: there.jsonl exists. Name another file, or replace it with -f."),
        (["pages.jsonl", "-o", "out.txt"], "the output out.txt has an unknown ending"),
        (
            ["pages.jsonl", "-o", "x.jsonl", "--chunk", "10"],
            "--chunk: cannot use '10'. Write a whole number from 200 to ",
        ),
        (
            ["pages.jsonl", "-o", "x.jsonl", "--text", "--markdown", "--chunk", "500"],
            "--chunk: it splits either Markdown or text. Omit --text or --markdown.",
        ),
    ],
)
def test_bad_input_is_refused_and_no_file_is_changed(records: Path, arguments: list[str], message: str) -> None:
    (records.parent / "there.jsonl").write_text("mine")
    before = {path.name: path.read_bytes() for path in records.parent.iterdir()}
    done = text(records.parent, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert {path.name: path.read_bytes() for path in records.parent.iterdir()} == before


def test_an_existing_output_is_replaced_with_force(records: Path) -> None:
    (records.parent / "out.jsonl").write_text("mine")
    assert text(records.parent, "pages.jsonl", "-o", "out.jsonl", "-f").returncode == 0
    assert len(list(read_records(records.parent / "out.jsonl"))) == 21


def test_an_output_that_another_command_writes_is_refused(records: Path) -> None:
    with unfinished(records.parent / "out.jsonl") as part:
        part.write_text("half")
        done = text(records.parent, "pages.jsonl", "-o", "out.jsonl")
        assert done.returncode == 2
        assert "out.jsonl is being written by another command" in done.stderr
        assert part.read_text() == "half"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_after_an_interruption_the_same_command_finishes(records: Path, number: signal.Signals) -> None:
    command = [python(), "-m", "gossamer", "text", "pages.jsonl", "-o", "out.jsonl"]
    slow = subprocess.Popen(command, cwd=records.parent, env={"GOSSAMER_TEXT__CPU": "60"}, stderr=subprocess.PIPE)
    while not (records.parent / ".out.jsonl.part").exists():
        assert slow.poll() is None
        time.sleep(0.01)
    slow.send_signal(number)
    _, errors = slow.communicate()
    assert slow.returncode == (130 if number == signal.SIGINT else -number), errors
    assert not (records.parent / "out.jsonl").exists()
    done = text(records.parent, "pages.jsonl", "-o", "out.jsonl")
    assert done.returncode == 0, done.stderr
    assert len(list(read_records(records.parent / "out.jsonl"))) == 21
    assert sorted(path.name for path in records.parent.iterdir()) == ["out.jsonl", "pages.jsonl"]


def test_pages_without_bodies_are_not_called_other_records(tmp_path: Path, records: Path) -> None:
    command = [python(), "-m", "gossamer", "export", "pages.jsonl", "pages.csv", "--pages"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60).returncode == 0
    done = text(tmp_path, "pages.csv", "-o", "out.jsonl")
    assert done.stdout == (
        "There is no HTML page with a body in the records.\n  1 failed page has no content\n"
        "  23 pages of pages.csv have no body.\n"
    )


def test_an_empty_input_makes_an_empty_output(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_bytes(b"")
    assert text(tmp_path, "pages.jsonl", "-o", "out.jsonl").returncode == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""


def test_without_the_extra_the_command_says_what_to_install(records: Path) -> None:
    program = (
        "import sys; sys.modules['trafilatura'] = None; from gossamer.__main__ import main; "
        "sys.argv = ['gossamer', 'text', 'pages.jsonl', '-o', 'out.jsonl']; sys.exit(main())"
    )
    done = subprocess.run([python(), "-c", program], cwd=records.parent, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert install_advice("text") in done.stderr
    assert not (records.parent / "out.jsonl").exists()
