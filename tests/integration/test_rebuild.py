"""A frontier that was lost is filled from the records of its crawl: no page with a record is fetched again, all others
are."""

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gossamer.cli.commands.rebuild import rebuild_crawl
from gossamer.crawling.rebuild import RebuildResult
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import DropReason
from gossamer.settings import Settings
from gossamer.sinks.export import ExportOptions, export_file
from gossamer.sinks.jsonl import json_units
from gossamer.sinks.open import ending_of
from gossamer.sinks.read import Source
from gossamer_fakeweb import expected, fetched, fetches
from tests.servers.crawling import Crawled, crawl, settings_for
from tests.servers.valkey import Server, standalone

SPEC = WebSpec(hosts=3, pages=50, cross_host_share=0.1, not_found=0.04, redirect_same=0.05, redirect_cross=0.05)
_prefixes = count()


class Crawl(NamedTuple):
    """A crawl that was done once, and whose records are given in part to a new frontier."""

    web: FakeWeb
    server: Server
    records: list[PageRecord]

    def settings(self, folder: Path, **changed: Any) -> dict[str, Any]:
        """Options of the crawl on an empty frontier."""
        return {"frontier": self.server.address, "prefix": f"lost{next(_prefixes)}", **changed}

    def write(self, path: Path, records: Sequence[PageRecord]) -> None:
        """Write records as an output of the format that the path names."""
        lines = path.with_name("lines.jsonl")
        lines.write_bytes(b"".join(json_units([Output(record=record) for record in records])))
        if path != lines:
            export_file(Source(lines), path, ending_of(str(path)), ExportOptions(records="pages"), replace=True)

    async def rebuild(self, folder: Path, options: dict[str, Any], **more: Any) -> RebuildResult:
        result, _ = await rebuild_crawl(self.parsed(folder, options), self.web.seeds(), [], quiet=True, **more)
        return result

    async def go_on(self, folder: Path, options: dict[str, Any]) -> tuple[Crawled, set[str]]:
        """Crawl to the end. Returns what came of it, and the URLs that it fetched."""
        before = len(self.web.log())
        done = await crawl(folder, self.web.seeds(), self.web.resolve_overrides(), **options)
        asked = fetches(self.web.log()[before:])
        assert max(asked.values(), default=1) == 1
        return done, set(asked)

    def parsed(self, folder: Path, options: dict[str, Any]) -> Settings:
        return settings_for(folder, self.web.resolve_overrides(), **options)

    def expected_after(self, recorded: Sequence[PageRecord]) -> set[str]:
        """URLs that are fetched when these have records."""
        done = {url for record in recorded for url in [record.url, *(hop.url for hop in record.redirects)]}
        done |= {record.response_url for record in recorded if record.reason != DropReason.DUPLICATE}
        return fetched(expected(self.web.site)) - done


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawl]:
    import asyncio

    folder = tmp_path_factory.mktemp("done")
    with FakeWeb.start(SPEC) as web, standalone(tcp=True) as server:
        options = {"frontier": server.address, "prefix": "done"}
        crawled = asyncio.run(crawl(folder, web.seeds(), web.resolve_overrides(), crawl__links=True, **options))
        yield Crawl(web, server, crawled.pages)


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.jsonl.gz", "pages.warc.gz", "pages.parquet"])
async def test_pages_with_a_record_are_not_fetched_again_and_all_others_are(
    name: str, done: Crawl, tmp_path: Path
) -> None:
    half = done.records[: len(done.records) // 2]
    done.write(tmp_path / name, half)
    options = done.settings(tmp_path, crawl__output=(str(tmp_path / name),), crawl__links=True)
    result = await done.rebuild(tmp_path, options)
    assert result.info is not None
    total = result.info.total()
    assert (result.records, total.fetched) == (len(half), sum(record.success for record in half))
    assert total.failed["http_404"] == sum(record.reason == "http_404" for record in half)
    went_on, asked = await done.go_on(tmp_path, options)
    assert asked == done.expected_after(half)
    assert went_on.summary.finished
    assert went_on.summary.info is not None
    assert went_on.summary.info.pages.fetched == sum(record.success for record in done.records)
