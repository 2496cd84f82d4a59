"""The commands of the first tutorial that end by themselves run as they stand, and print what the page shows."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.crawling import command
from tests.servers.valkey import free_ports

PAGE = (Path(__file__).parents[2] / "docs/tutorial/first-crawl.md").read_text()
_EXAMPLE = re.compile(r"^```console\n\$ (.*?[^\\])\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IN_PAGE = "8082"
"""Port of the practice web on the page."""
_ALL_SITES = "all.jsonl"
"""Output of the crawls that take too long for a test."""


def _examples(start: str) -> list[tuple[list[str], str]]:
    """Return the words and the output of the commands of the page that begin like this."""
    return [(shlex.split(typed.replace("\\\n", " ")), shown) for typed, shown in _EXAMPLE.findall(PAGE)
            if typed.startswith(start)]  # fmt: skip


def _alike(text: str) -> list[str]:
    """Return the lines with every number and the id of a crawl as one sign, because they differ."""
    text = re.sub(r"(site0\.test-)[0-9a-f]{8}", r"\1#", text.replace(_ALL_SITES, "site0.test.jsonl"))
    return [re.sub(r"\d+", "#", line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def port() -> Iterator[str]:
    """Port of the practice web, started as the page says."""
    [number] = free_ports(1)
    [(words, shown)] = _examples("python -m gossamer.fakeweb")
    started = [sys.executable, *(str(number) if word == _IN_PAGE else word for word in words[1:])]
    with subprocess.Popen(started, stdout=subprocess.PIPE, text=True) as web:
        assert web.stdout is not None
        assert web.stdout.readline().replace(str(number), _IN_PAGE) == shown
        yield str(number)
        web.terminate()


def test_the_tutorial_prints_what_its_page_shows(tmp_path: Path, port: str) -> None:
    crawls = [each for each in _examples("gossamer crawl") if _ALL_SITES not in each[0]]
    examples = [*_examples("gossamer fetch"), *crawls, *_examples("gossamer why")]
    assert len(examples) == 3
    for words, shown in examples:
        typed = [word.replace(_IN_PAGE, port) for word in words[1:]]
        done = subprocess.run(command(*typed), cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
        assert _alike(done.stdout.replace(port, _IN_PAGE)) == _alike(shown)
