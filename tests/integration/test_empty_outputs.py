"""Outputs for items of which none was found: files without records that the readers of their formats can read."""

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow.parquet
import pytest
import zstandard

from gossamer.fakeweb import WebSpec, serve
from gossamer.sinks.open import ENDINGS
from gossamer.sinks.read import Source
from tests.servers.crawling import FAST_FLAGS, gossamer, resolving

FILES = [f"here{ending}" for ending in ENDINGS]
REMOTE = [f"there{ending}" for ending in ENDINGS if not ending.startswith(".warc")]


def outputs(folder: Path) -> Iterator[str]:
    """`-o` for each format, here and behind a URL."""
    for path in [*FILES, *(f"local://{folder}/{name}" for name in REMOTE)]:
        yield from ("-o", path, "--items")


def check_readable(folder: Path, ending: str, name: str) -> None:
    """Read a file as other programs do."""
    path = folder / name
    if ending == ".json":
        assert json.loads(path.read_text()) == []
    elif ending == ".csv":
        assert path.read_text() == "page_url,title\n"
    elif ending in (".sqlite", ".sqlite3", ".db"):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("SELECT page_url, title FROM items").fetchall() == []
    elif ending == ".parquet":
        assert pyarrow.parquet.read_table(path).num_rows == 0
    elif ending.endswith(".gz"):
        gzip.decompress(path.read_bytes())
        assert path.stat().st_size
    elif ending.endswith(".zst"):
        assert zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read() == b""
        assert path.stat().st_size
    assert list(Source(path).outputs()) == []


async def test_every_output_for_items_is_a_valid_file_and_the_corrected_crawl_fills_it(tmp_path: Path) -> None:
    async with serve(WebSpec(hosts=1, pages=3)) as web:

        def crawl(*fields: str) -> str:
            options = [*resolving(web.resolve_overrides()), *FAST_FLAGS, *outputs(tmp_path)]
            run = gossamer("crawl", *web.seeds(), *options, *fields, cwd=tmp_path)
            assert run.returncode == 0, run.stderr
            return run.stdout + run.stderr

        said = await asyncio.to_thread(crawl, "--field", "title=.nothing")
        for name in [*FILES, *REMOTE]:
            check_readable(tmp_path, "." + name.partition(".")[2], name)
            assert f"{name} is empty" in said or f"{name} has only its header" in said
        await asyncio.to_thread(crawl, "--field", "title=.nothing")  # it is finished: nothing changes
        said = await asyncio.to_thread(crawl, "--field", "heading=h1")
        assert "no items were found" not in said
        for name in [*FILES, *REMOTE]:
            assert len(list(Source(tmp_path / name).outputs())) == 3, name
    assert (tmp_path / "here.csv").read_text().startswith("page_url,heading\n")


async def test_a_file_that_is_only_like_an_empty_output_stays(tmp_path: Path) -> None:
    """A header of other columns, and a database with other tables, are a person's own."""
    (tmp_path / "mine.csv").write_text("name,price\n")
    with closing(sqlite3.connect(tmp_path / "mine.sqlite")) as connection:
        connection.execute("CREATE TABLE customers (name)")
    before = {tmp_path / name: (tmp_path / name).read_bytes() for name in ("mine.csv", "mine.sqlite")}
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for name in ("mine.csv", "mine.sqlite"):
            options = [*resolving(web.resolve_overrides()), "-o", name, "--field", "title=h1"]
            run = await asyncio.to_thread(gossamer, "crawl", *web.seeds(), *options, cwd=tmp_path)
            assert run.returncode == 2, run.stderr
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_export_of_no_items_is_a_valid_file(ending: str, tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    run = gossamer("export", "none.jsonl", f"out{ending}", "--items", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert list(Source(tmp_path / f"out{ending}").outputs()) == []
    if ending != ".jsonl":
        assert (tmp_path / f"out{ending}").stat().st_size
