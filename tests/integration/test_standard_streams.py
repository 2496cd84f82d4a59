"""Standard input, output and error that are closed, or that nobody reads: no abort, no traceback, no endless loop."""

import json
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.crawling import command, gossamer, nobody_reads, records_of, resolving

SPEC = WebSpec(hosts=1, pages=60)


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as running:
        yield running


@pytest.fixture
def crawling(web: FakeWeb) -> list[str]:
    return command("crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "1000/1")


def closed(*descriptors: int, then: list[str]) -> list[str]:
    """The command line, begun without these descriptors."""
    return ["sh", "-c", 'exec "$@" ' + " ".join(f"{descriptor}>&-" for descriptor in descriptors), "sh", *then]


@pytest.mark.parametrize(
    ("descriptors", "more"), [((0,), ()), ((1,), ()), ((2,), ()), ((0, 1, 2), ("--processes", "2"))]
)
def test_a_crawl_without_standard_streams(
    descriptors: tuple[int, ...], more: tuple[str, ...], crawling: list[str], web: FakeWeb, tmp_path: Path
) -> None:
    """No file or socket of ours takes the number of one, and nobody writes into it by mistake."""
    ended = subprocess.run(
        closed(*descriptors, then=[*crawling, *more]), cwd=tmp_path, capture_output=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == b""
    assert (b"is finished" in ended.stdout) == (1 not in descriptors)
    assert {record.url for record in records_of(tmp_path / "site0.test.jsonl")} == graph(web.site)


@pytest.mark.parametrize(
    "arguments",
    [
        ("crawl", "http://a.test/", "-o", "-"),
        ("export", "pages.jsonl", "-"),
        ("text", "pages.jsonl", "-o", "-"),
        ("dump", "demo.crawled_app", "--consumer", "group"),
    ],
)
def test_records_for_a_standard_output_that_is_closed_are_refused(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").touch()
    ended = subprocess.run(
        closed(1, then=command(*arguments)), cwd=tmp_path, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "standard output is closed. Open it, or name a file." in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "pages.jsonl"]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_summary_that_nobody_reads(more: tuple[str, ...], crawling: list[str], tmp_path: Path) -> None:
    ended = nobody_reads([*crawling, *more], tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_words_that_nobody_reads_stop_no_crawl(crawling: list[str], web: FakeWeb, tmp_path: Path) -> None:
    folder = tmp_path / "made"
    ended = nobody_reads([*crawling, "-o", str(folder / "pages.jsonl")], tmp_path, errors_too=True)
    assert ended.returncode == 0
    assert {record.url for record in records_of(folder / "pages.jsonl")} == graph(web.site)


@pytest.mark.parametrize("arguments", [("--help",), ("crawl", "--help"), ("--version",), ("fetch", "http://a.test/")])
def test_an_answer_that_nobody_reads_is_no_fault(arguments: tuple[str, ...], tmp_path: Path) -> None:
    more = ("--resolve", "a.test:127.0.0.1", "--timeout", "1") if arguments[0] == "fetch" else ()
    assert nobody_reads(command(*arguments, *more), tmp_path).stderr == ""


def test_pages_that_nobody_reads_end_the_crawl_in_several_processes_too(crawling: list[str], tmp_path: Path) -> None:
    ended = nobody_reads([*crawling, "-o", "-", "--processes", "2"], tmp_path)
    assert ended.returncode == 130
    assert "The reader closed the output" in ended.stderr
    assert "died" not in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_summary_or_a_table_without_room_is_said(crawling: list[str], tmp_path: Path) -> None:
    for one in ([*crawling, "--json"], command("crawls", "list")):
        with Path("/dev/full").open("w") as full:
            ended = subprocess.run(
                one, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
        assert ended.returncode == 2
        assert "standard output: No space left on device" in ended.stderr
        assert ended.stderr.count("\n") == 1
    for other in ("crawls", "list"), ("top",):
        ended = nobody_reads(command(*other), tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_folder_that_is_made_is_said(crawling: list[str], tmp_path: Path) -> None:
    ended = subprocess.run(
        [*crawling, "-o", "new/deep/pages.jsonl", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert json.loads(ended.stdout)["pages"] == SPEC.pages
    assert ended.stderr == "gossamer: The folder new/deep does not exist; it is created for the output.\n"


def test_a_worker_without_a_frontier_is_told_what_to_name(tmp_path: Path) -> None:
    ended = gossamer("worker", cwd=tmp_path)
    assert ended.returncode == 2
    assert "--frontier" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("crawl", "https://example.com", "--depth", "x"), "--depth"),
        (("crawl", "https://example.com", "--dept", "1"), "--depth"),
        (("crawl", "https://example.com", "--depth"), "--depth"),
        (("crwal", "https://example.com"), "Did you mean 'crawl'"),
        (("domains", "sett"), "gossamer domains --help"),
        (("fetch",), "URL"),
    ],
)
def test_what_cannot_be_parsed_is_one_line(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    ended = gossamer(*arguments, cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("gossamer: ")
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
def test_a_folder_and_an_output_with_names_that_are_not_utf_8(crawling: list[str], tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for state in (b"finished", b"already finished"):  # the second finds its note again
        ended = subprocess.run(
            [*crawling, "-o", b"\xe9.jsonl"], cwd=folder, capture_output=True, timeout=60, check=False
        )
        assert (ended.returncode, ended.stderr) == (0, b"")
        assert b"is " + state in ended.stdout
        assert b"pages are in \xe9.jsonl\n" in ended.stdout


_ASKS = """
from gossamer.cli import terminal
from gossamer.errors import BadInput, Interrupted
terminal.watch_signals()
try:
    terminal.typed("secret", hidden=True)
except (BadInput, Interrupted) as error:
    terminal.say(str(error))
"""


@pytest.mark.parametrize(("key", "said"), [(b"\x03", b"Interrupted."), (b"\x04", b"nothing was typed.")])
def test_a_question_for_a_secret_that_is_not_answered_leaves_a_terminal_that_shows_what_is_typed(
    key: bytes, said: bytes
) -> None:
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", _ASKS])
    shown = b""
    while not shown.endswith(b"secret: "):
        shown += os.read(terminal, 1)
    assert not termios.tcgetattr(terminal)[3] & termios.ECHO
    os.write(terminal, key)
    while said not in shown:
        shown += os.read(terminal, 100)
    assert termios.tcgetattr(terminal)[3] & termios.ECHO
    os.waitpid(process, 0)
    os.close(terminal)
