"""`gossamer export` as a person runs it: files, pipes, remote files, refusals and interruptions."""

import csv
import io
import json
import os
import pty
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from gossamer.cli.commands.export import _Progress
from gossamer.model.json_codec import encode_lines
from gossamer.model.record import ItemRecord
from gossamer.sinks.export import ExportStopped
from gossamer.sinks.jsonl import read_records
from tests.integration.sink_writer import page
from tests.integration.test_sinks_spooled import ftp  # noqa: F401 (a fixture)
from tests.servers.crawling import command, gossamer


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    """An output with two pages and an item."""
    item = ItemRecord(
        appid="a", crawlid="c", spiderid="s", request_id="r1", attempt=0, url="https://a.test/", attrs=None,
        timestamp="", item={"title": "=A"},
    )  # fmt: skip
    (tmp_path / "pages.jsonl").write_bytes(encode_lines([page("r1", "body").record, item, page("r2").record]))
    return tmp_path / "pages.jsonl"


def test_a_file_becomes_another_and_is_replaced_only_on_demand(pages: Path) -> None:
    first = gossamer("export", "pages.jsonl", "items.csv", cwd=pages.parent)
    assert first.returncode == 0, first.stderr
    assert first.stdout == (
        "Exported 1 item from pages.jsonl to items.csv.\n"
        "  2 pages left out: this file has items only.\n"
        "  1 item without the fields of their records (crawlid, request_id and so on).\n"
    )
    again = gossamer("export", "pages.jsonl", "items.csv", cwd=pages.parent)
    assert again.returncode == 2
    assert again.stderr == "gossamer: items.csv exists. Name another file, or replace it with -f.\n"
    forced = gossamer("export", "pages.jsonl", "items.csv", "-f", "--csv-guard", "--json", cwd=pages.parent)
    assert json.loads(forced.stdout)["items"] == 1
    assert (pages.parent / "items.csv").read_text() == '"page_url","title"\n"https://a.test/","\'=A"\n'
    assert sorted(os.listdir(pages.parent)) == ["items.csv", "pages.jsonl"]


def test_standard_streams(pages: Path) -> None:
    out = gossamer("export", "-", "-", "--format", "csv", "--pages", cwd=pages.parent, stdin=pages.read_text())
    assert out.returncode == 0, out.stderr
    assert [row["request_id"] for row in csv.DictReader(io.StringIO(out.stdout))] == ["r1", "r2"]
    assert "Exported 2 pages from standard input to standard output." in out.stderr
    lines = gossamer("export", "pages.jsonl", "-", "-q", cwd=pages.parent)
    assert lines.stdout == pages.read_text()
    assert lines.stderr == ""


def test_a_reader_that_has_enough_ends_the_export_quietly(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_bytes(encode_lines([page(f"r{n}", "x" * 1000).record for n in range(5000)]))
    shell = " ".join([*command("export", "pages.jsonl", "-", "-q"), "| head -2 | wc -l; exit ${PIPESTATUS[0]}"])
    done = subprocess.run(["bash", "-c", shell], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr, done.returncode) == ("2", "", 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none.jsonl", "a.csv"), "there is no file none.jsonl"),
        (("pages.jsonl", "a.xls"), "the output a.xls has an unknown ending; known are .jsonl"),
        (("pages.jsonl", "-", "--format", "xls"), "--format: cannot write 'xls'. Known are jsonl"),
        (("pages.jsonl", "a.csv", "--items", "--pages"), "a CSV file cannot hold both pages and items"),
        ((".", "a.csv"), ". is a folder"),
        (("pages.jsonl", "gopher://a/b.csv"), "unknown protocol"),
        (("pages.jsonl", "pages.jsonl/a.csv"), "pages.jsonl/a.csv"),
    ],
)
def test_bad_input_is_said_in_one_line(pages: Path, arguments: tuple[str, ...], said: str) -> None:
    done = gossamer("export", *arguments, cwd=pages.parent)
    assert done.returncode in (1, 2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir(pages.parent) == ["pages.jsonl"]


def test_controls_of_a_page_do_not_act_on_a_terminal(tmp_path: Path) -> None:
    record = page("r1").record
    record.url = "http://a.test/\x1b]0;x\x07é"
    (tmp_path / "pages.jsonl").write_bytes(encode_lines([record]))
    ours, theirs = pty.openpty()
    export = command("export", "pages.jsonl", "-", "--format", "csv")
    subprocess.run(export, cwd=tmp_path, stdout=theirs, timeout=60, check=True)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    os.close(theirs)
    assert "http://a.test/\ufffd]0;x\ufffdé" in shown
    assert "\x1b" not in shown


def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path) -> None:
    lines = encode_lines([page(f"r{n}", "x" * 500).record for n in range(60_000)])
    (tmp_path / "pages.jsonl").write_bytes(lines)
    with subprocess.Popen(
        command("export", "pages.jsonl", "b.jsonl.gz"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as process:
        while not list(tmp_path.glob(".b.jsonl.gz.part")):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "nothing was written" in said
    assert sorted(os.listdir(tmp_path)) == ["pages.jsonl"]


def test_progress_is_shown_and_a_stopped_export_ends(monkeypatch: pytest.MonkeyPatch, capsys: object) -> None:
    stopped = threading.Event()
    progress = _Progress(stopped, quiet=False)
    progress._shown_at -= 60
    progress.update(1234)
    assert capsys.readouterr().err == "gossamer: 1,234 records read\n"  # type: ignore[attr-defined]
    progress.update(1235)
    assert capsys.readouterr().err == ""  # type: ignore[attr-defined]
    stopped.set()
    with pytest.raises(ExportStopped):
        progress.update(1236)


def test_remote_files(pages: Path, ftp: object) -> None:  # noqa: F811
    url = f"ftp://user:secret@127.0.0.1:{ftp.port}/new/b.jsonl.gz"  # type: ignore[attr-defined]
    there = gossamer("export", "pages.jsonl", url, cwd=pages.parent)
    assert there.returncode == 0, there.stderr
    assert "secret" not in there.stdout
    refused = gossamer("export", "pages.jsonl", url, cwd=pages.parent)
    assert refused.returncode == 2
    assert "secret" not in refused.stderr
    back = gossamer("export", url, "c.jsonl", cwd=pages.parent)
    assert back.returncode == 0, back.stderr
    assert list(read_records(pages.parent / "c.jsonl")) == list(read_records(pages))
