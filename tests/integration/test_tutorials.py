"""The commands of the first tutorial that end by themselves run as they stand, and print what the page shows."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.servers.crawling import command
from tests.servers.valkey import free_ports

TUTORIALS = Path(__file__).parents[2] / "docs/tutorial"
_BLOCK = re.compile(r"^```(console|)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ALL_SITES = "all.jsonl"
"""Output of the crawls of the first tutorial that take too long for a test."""


def _alike(text: str) -> str:
    """Return the text with every number and the id of a crawl as one sign, because they differ."""
    text = re.sub(r"((?:site0\.test|localhost)-)[0-9a-f]{8}", r"\1#", text)
    return re.sub(r"\d+", "#", text)


def _pattern(shown: str) -> str:
    """Return an expression for an output as the page shows it: a line of `…` stands for any lines."""
    lines = [r"(?:.*\n)+" if line.strip() == "…" else re.escape(f"{line}\n") for line in _alike(shown).splitlines()]
    return "".join(lines)


def _examples(page: str, *, beginning: str) -> list[tuple[str, list[str], str]]:
    """Return the first word, the others and the output of the commands of a page that begin like this."""
    found = []
    for kind, text in _BLOCK.findall(page):
        typed, _, shown = text.replace("\\\n", " ").partition("\n")
        if kind and typed.startswith(f"$ {beginning}"):
            first, *words = shlex.split(typed.removeprefix("$ "))
            found.append((first, words, shown))
    return found


def _check(folder: Path, words: list[str], shown: str, *, port: str, in_page: str) -> None:
    """Run a command of `gossamer` on the site at `port`, and compare its output with the page's."""
    typed = [word.replace(in_page, port) for word in words]
    done = subprocess.run(command(*typed), cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    printed = _alike(done.stdout.replace(port, in_page))
    assert re.fullmatch(_pattern(shown), printed), f"{printed}\nThe page shows:\n{shown}"


@contextmanager
def _started(words: list[str], *, port: str, in_page: str, folder: Path) -> Iterator[str]:
    """Start a server of the page at `port`, and yield the line that it prints when it listens."""
    arguments = [sys.executable, "-u", *(port if word == in_page else word for word in words)]
    with subprocess.Popen(
        arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline()
        finally:
            server.terminate()


def test_the_first_crawl(tmp_path: Path) -> None:
    page = (TUTORIALS / "first-crawl.md").read_text()
    port, in_page = str(free_ports(1)[0]), "8082"
    [(_, web, listens)] = _examples(page, beginning="python -m gossamer.fakeweb")
    crawls = [each for each in _examples(page, beginning="gossamer crawl") if _ALL_SITES not in each[1]]
    fetches, whys = (_examples(page, beginning=f"gossamer {name}") for name in ("fetch", "why"))
    assert [len(each) for each in (fetches, crawls, whys)] == [1, 1, 1]
    with _started(web, port=port, in_page=in_page, folder=tmp_path) as line:
        assert line.replace(port, in_page) == listens
        for _, words, shown in (*fetches, *crawls, *whys):
            shown = shown.replace(_ALL_SITES, "site0.test.jsonl")
            _check(tmp_path, words, shown, port=port, in_page=in_page)
