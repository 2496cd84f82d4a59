"""The output of a crawl is deleted or cut in mid-crawl or while the crawl rests: said, counted, exit code 1."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.crawling import command, resolving
from tests.servers.valkey import wait_until

PAGES = 100
RATE = ("--rate", "40/1", "--domain-concurrency", "4")


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=2, pages=PAGES // 2)) as running:
        yield running


class Crawl:
    """One crawl, begun and resumed in a folder."""

    def __init__(self, web: FakeWeb, folder: Path) -> None:
        self.output = folder / "pages.jsonl"
        self._folder = folder
        self._line = ["crawl", *web.seeds(), *resolving(web.resolve_overrides()), *RATE, "--json"]

    def begin(self, *more: str, pages: int = 0) -> "subprocess.Popen[str]":
        """Return when so many pages are in the output."""
        process = subprocess.Popen(
            command(*self._line, *more), cwd=self._folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        wait_until(lambda: self.lines() >= pages, "some pages")
        return process

    def lines(self) -> int:
        return self.output.read_bytes().count(b"\n") if self.output.exists() else 0


def ended(process: "subprocess.Popen[str]") -> tuple[int, dict[str, int], str]:
    out, said = process.communicate(timeout=60)
    assert "Traceback" not in said
    return process.returncode, json.loads(out), said


def delete(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("vanish", [delete, cut])
@pytest.mark.parametrize("processes", ["1", "2"])
def test_in_mid_crawl(web: FakeWeb, tmp_path: Path, vanish: Callable[[Path], None], processes: str) -> None:
    crawl = Crawl(web, tmp_path)
    process = crawl.begin("--processes", processes, pages=20)
    vanish(crawl.output)
    code, summary, said = ended(process)
    assert code == summary["exit_code"] == 1
    assert summary["state"] == "finished"
    assert summary["missing_records"] == PAGES - crawl.lines() > 0
    assert said.count("pages.jsonl was deleted or cut short") == 1


@pytest.mark.parametrize("vanish", [delete, cut])
def test_before_it_is_resumed(web: FakeWeb, tmp_path: Path, vanish: Callable[[Path], None]) -> None:
    crawl = Crawl(web, tmp_path)
    first = crawl.begin(pages=20)
    first.send_signal(signal.SIGINT)
    assert ended(first)[0] == 130
    vanish(crawl.output)
    code, summary, said = ended(crawl.begin())
    assert code == summary["exit_code"] == 1
    assert summary["missing_records"] == PAGES - crawl.lines() > 0
    assert said.count("pages.jsonl was deleted or cut short") == 1
    for _ in range(2):  # told again, until --fresh writes them all
        code, again, _ = ended(crawl.begin())
        assert (code, again["already_finished"], again["missing_records"]) == (1, True, summary["missing_records"])
    code, fresh, _ = ended(crawl.begin("--fresh"))
    assert (code, fresh["missing_records"], crawl.lines()) == (0, 0, PAGES)


def test_what_an_interrupted_command_missed_is_told_by_the_one_that_finishes(web: FakeWeb, tmp_path: Path) -> None:
    crawl = Crawl(web, tmp_path)
    process = crawl.begin(pages=20)
    delete(crawl.output)
    wait_until(lambda: crawl.lines() >= 5, "pages in the new file")
    process.send_signal(signal.SIGINT)
    assert ended(process)[1]["missing_records"] > 0
    code, summary, said = ended(crawl.begin())
    assert "deleted" not in said
    assert (code, summary["missing_records"]) == (1, PAGES - crawl.lines())


def test_a_renamed_output_is_followed(web: FakeWeb, tmp_path: Path) -> None:
    crawl = Crawl(web, tmp_path)
    process = crawl.begin(pages=20)
    crawl.output.rename(tmp_path / "pages.1.jsonl")
    wait_until(lambda: crawl.lines() >= 20, "pages in the new file")
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130
    crawl.output.rename(tmp_path / "pages.2.jsonl")
    code, summary, said = ended(crawl.begin())
    assert code == 0
    assert summary["missing_records"] == 0
    assert "deleted" not in said
    assert sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("*.jsonl")) == PAGES
