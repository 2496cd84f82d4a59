"""Crawls for tests: in this process, or by the command in one of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.cli.commands.crawl import run_crawl
from gossamer.cli.summary import Summary
from gossamer.crawling.outputs import StartOptions
from gossamer.model.record import ItemRecord, PageRecord
from gossamer.net.resolve import parse_override
from gossamer.settings import Settings, load
from gossamer.sinks.jsonl import read_records
from tests.servers.nursery import GOSSAMER, run_reared
from tests.servers.program import python

FAST = {
    "crawl.rate": "10000/1",
    "crawl.domain_concurrency": 16,
    "fetch.timeout": 1.0,
    "fetch.retry_base": 0.02,
    "worker.drain": 10.0,
}
"""Settings of a crawl of a web that is ours."""

FAST_FLAGS = ("--rate", "10000/1", "--domain-concurrency", "16", "--timeout", "1")


@dataclass
class Crawled:
    """What came of a crawl."""

    summary: Summary
    records: list[PageRecord | ItemRecord]

    @property
    def pages(self) -> list[PageRecord]:
        return [record for record in self.records if isinstance(record, PageRecord)]

    @property
    def items(self) -> list[ItemRecord]:
        return [record for record in self.records if isinstance(record, ItemRecord)]

    def by_url(self) -> dict[str, PageRecord]:
        """The record of each URL; no URL may have two."""
        pages = self.pages
        found = {page.url: page for page in pages}
        assert len(found) == len(pages), "a URL has two records"
        return found


def settings_for(folder: Path, overrides: Sequence[str] = (), **changed: Any) -> Settings:
    """Fast and private to the folder; `changed` by dotted name with `__` for the dot."""
    flags = {
        **FAST,
        "crawl.output": (str(folder / "pages.jsonl"),),
        "data_dir": folder / "data",
        "fetch.resolve": dict(map(parse_override, overrides)),
        **{name.replace("__", "."): value for name, value in changed.items()},
    }
    return load(flags, config=None)


async def crawl(
    folder: Path,
    urls: Sequence[str],
    overrides: Sequence[str] = (),
    *,
    fresh: bool = False,
    crawl_id: str | None = None,
    **changed: Any,
) -> Crawled:
    """Crawl to the end in this event loop."""
    settings = settings_for(folder, overrides, **changed)
    summary = await run_crawl(settings, urls, [], crawl_id=crawl_id, start=StartOptions(fresh=fresh), quiet=True)
    return Crawled(summary, records_of(folder / "pages.jsonl"))


def records_of(path: Path) -> list[PageRecord | ItemRecord]:
    """None if there is no file."""
    return list(read_records(path)) if path.exists() else []


def command(*arguments: str) -> list[str]:
    """The command line that runs `gossamer` with these arguments."""
    return [python(), "-m", "gossamer", *arguments]


_OF_PYTHON = ("PYTHON", "LC_", "LANG", "TZ", "GOSSAMER_NATIVE")
"""Beginnings of names of variables that a process reads before its first line, or as it loads Gossamer."""


def gossamer(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, stdin: str = ""
) -> "subprocess.CompletedProcess[str]":
    """Run the command to its end."""
    environment = {**os.environ, **(env or {})}
    if python() == sys.executable and not any(name.startswith(_OF_PYTHON) for name in env or {}):
        return run_reared(GOSSAMER, arguments, environment=environment, folder=cwd, stdin=stdin, seconds=60)
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        env=environment,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def resolving(overrides: Sequence[str]) -> list[str]:
    """`--resolve` for each."""
    return [part for override in overrides for part in ("--resolve", override)]


def nobody_reads(command: Sequence[str], cwd: Path, *, errors_too: bool = False) -> "subprocess.CompletedProcess[str]":
    """Run a command with a pipe as standard output whose other end is closed already."""
    reading, writing = os.pipe()
    os.close(reading)
    stderr = writing if errors_too else subprocess.PIPE
    try:
        return subprocess.run(command, cwd=cwd, stdout=writing, stderr=stderr, text=True, timeout=60, check=False)
    finally:
        os.close(writing)
