"""A frontier that was lost is filled from the records of its crawl: no page with a record is fetched again, all others
are."""

import asyncio
import gzip
import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gossamer.cli.commands import moves
from gossamer.cli.rebuilding import rebuild_crawl, rebuild_requests
from gossamer.crawling import rebuild
from gossamer.crawling.engine import prepare
from gossamer.crawling.rebuild import Rebuild, RebuildResult
from gossamer.errors import BadInput
from gossamer.fakeweb import Answer, FakeWeb, WebSpec, html
from gossamer.frontier.base import Lane
from gossamer.model.crawl import SHARED_POOL
from gossamer.model.record import Output, PageRecord
from gossamer.model.request import DropReason
from gossamer.settings import Settings
from gossamer.sinks.export import ExportOptions, export_file
from gossamer.sinks.jsonl import json_units, read_records
from gossamer.sinks.open import ending_of
from gossamer.sinks.read import Source
from gossamer.wiring.frontier import connect
from gossamer.wiring.service import open_service
from gossamer_fakeweb import expected, fetched, fetches
from tests.servers.crawling import Crawled, command, crawl, resolving, settings_for
from tests.servers.program import until
from tests.servers.valkey import Cluster, Server, cluster, standalone

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


# --- moved to another frontier ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def three_servers() -> Iterator[Cluster]:
    with cluster(primaries=3) as servers:
        yield servers


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 2), (4, 2), (2, 3), (1, "cluster"), (3, "cluster")])
async def test_a_crawl_goes_on_where_it_was_on_another_frontier(
    before: int, after: int | str, done: Crawl, three_servers: Cluster, tmp_path: Path
) -> None:
    half = done.records[: len(done.records) // 2]
    done.write(tmp_path / "pages.jsonl", half)
    source = done.settings(tmp_path, shards=before)
    rebuilt = (await done.rebuild(tmp_path, source)).info
    assert rebuilt is not None
    address = three_servers.address if after == "cluster" else done.server.address
    target = done.settings(tmp_path, frontier=address, shards=6 if after == "cluster" else after)
    file = tmp_path / "crawl.zst"
    exported, _ = await moves.export_from(done.parsed(tmp_path, source), rebuilt.crawl.crawlid, file)
    imported, _ = await moves.import_into(done.parsed(tmp_path, target), file)
    for name in ("run", "seen", "spiders", "queued_by_priority", "kept_failed", "started"):
        assert getattr(imported, name) == getattr(exported, name), name
    went_on, asked = await done.go_on(tmp_path, target)
    assert asked == done.expected_after(half)
    assert went_on.summary.finished
    with pytest.raises(BadInput, match="is paused"):
        await done.go_on(tmp_path, source)


async def test_a_file_that_was_cut_or_changed_and_a_second_crawl_of_the_name_are_refused(
    done: Crawl, tmp_path: Path
) -> None:
    done.write(tmp_path / "pages.jsonl", done.records[:20])
    source = done.settings(tmp_path)
    rebuilt = (await done.rebuild(tmp_path, source)).info
    assert rebuilt is not None
    file = tmp_path / "crawl.gz"
    await moves.export_from(done.parsed(tmp_path, source), rebuilt.crawl.crawlid, file)
    assert file.stat().st_mode & 0o777 == 0o600
    whole = file.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    changed = gzip.compress(b"".join([lines[0], lines[2], lines[1], *lines[3:]]))
    newer = lines[0].replace(b'"version":1,', b'"version":2,')
    assert newer != lines[0]
    target = done.settings(tmp_path)
    for content, message in (
        (gzip.compress(b"".join(lines[:-1])), "was cut"),
        (whole[: len(whole) // 2], "cannot be read"),
        (changed, "was changed"),
        (gzip.compress(b"{}\n"), "no line of an exported crawl"),
        (gzip.compress(newer + b'{"kind":"later release"}\n'), "was written by a newer release"),
        (b"a text", "no export of a crawl"),
    ):
        file.write_bytes(content)
        with pytest.raises(BadInput, match=message):
            await moves.import_into(done.parsed(tmp_path, target), file)
    file.write_bytes(whole)
    await moves.import_into(done.parsed(tmp_path, target), file)
    with pytest.raises(BadInput, match="was imported before"):
        await moves.import_into(done.parsed(tmp_path, target), file)
    await moves.export_from(done.parsed(tmp_path, source), rebuilt.crawl.crawlid, file)  # another export of it
    with pytest.raises(BadInput, match="has a crawl"):
        await moves.import_into(done.parsed(tmp_path, target), file)
    elsewhere = done.settings(tmp_path)
    other = tmp_path / "other"
    await crawl(other, done.web.seeds()[:1], done.web.resolve_overrides(), crawl__depth=0, **elsewhere)
    with pytest.raises(BadInput, match="another key"):
        await moves.import_into(done.parsed(tmp_path, elsewhere), file)


# --- limits of a rebuild ----------------------------------------------------------------------------------------------


async def test_a_rebuild_that_was_killed_is_repeated_and_the_crawl_waits_for_it(
    done: Crawl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = done.records[: len(done.records) // 2]
    done.write(tmp_path / "pages.jsonl", half)
    monkeypatch.setattr(rebuild, "_REQUESTS_AT_ONCE", 10)
    monkeypatch.setattr(rebuild, "_LINKS_AT_ONCE", 50)
    options = done.settings(tmp_path, shards=3)
    settings = done.parsed(tmp_path, options)
    for step, at in (("requests", 30), ("links", 30)):

        def die(now: str, records: int, step: str = step, at: int = at) -> None:
            if (now, records) == (step, at):
                raise KeyboardInterrupt

        plan = await prepare(settings, done.web.seeds(), [], crawl_id=None)
        frontier = await connect(settings, settings.frontier)
        with pytest.raises(KeyboardInterrupt):
            await Rebuild(settings, plan, frontier, settings.crawl.output_paths, on_progress=die).run()
        await frontier.maintain()
        await frontier.close()
        with pytest.raises(BadInput, match="not filled again completely"):
            await done.go_on(tmp_path, options)
    result = await done.rebuild(tmp_path, options)
    assert result.info is not None
    assert result.info.total().fetched == sum(record.success for record in half)
    _, asked = await done.go_on(tmp_path, options)
    assert asked == done.expected_after(half)


async def test_a_frontier_with_the_crawl_is_refused_unless_it_is_to_be_replaced(done: Crawl, tmp_path: Path) -> None:
    options = done.settings(tmp_path)
    done.write(tmp_path / "pages.jsonl", done.records[:10])
    await done.rebuild(tmp_path, options)
    half = done.records[: len(done.records) // 2]
    done.write(tmp_path / "pages.jsonl", half)  # the frontier is an old copy
    with pytest.raises(BadInput, match="--replace"):
        await done.rebuild(tmp_path, options)
    await done.rebuild(tmp_path, options, replace=True)
    _, asked = await done.go_on(tmp_path, options)
    assert asked == done.expected_after(half)


@pytest.mark.parametrize("links", [True, False])
async def test_tables_without_bodies_tell_links_or_else_only_what_is_known(
    links: bool, done: Crawl, tmp_path: Path
) -> None:
    half = done.records[: len(done.records) // 2]
    done.write(tmp_path / "pages.sqlite", half)
    options = done.settings(tmp_path, crawl__output=({"path": str(tmp_path / "pages.sqlite"), "records": "pages"},))
    options["crawl__links"] = links
    result = await done.rebuild(tmp_path, options)
    assert bool(result.pages_without_links) is not links
    assert any("neither bodies nor links" in sentence for sentence in result.sentences) is not links
    _, asked = await done.go_on(tmp_path, options)
    if links:
        assert asked == done.expected_after(half)
    else:
        seeds = set(done.web.seeds())
        assert seeds <= asked
        assert not (asked - seeds) & {record.url for record in half}


async def test_a_limit_of_pages_counts_those_of_the_lost_frontier(done: Crawl, tmp_path: Path) -> None:
    done.write(tmp_path / "pages.jsonl", done.records[:60])
    fetched_before = sum(record.success for record in done.records[:60])
    options = done.settings(tmp_path, shards=2, crawl__max_pages=fetched_before + 5)
    plan = await prepare(done.parsed(tmp_path, options), done.web.seeds(), [], crawl_id=None)
    of_plan = [msgspec.structs.replace(one, crawlid=plan.crawl.id.crawlid) for one in done.records[:60]]
    done.write(tmp_path / "pages.jsonl", of_plan)
    await done.rebuild(tmp_path, options)
    went_on, _ = await done.go_on(tmp_path, options)
    assert went_on.summary.info is not None
    assert went_on.summary.info.pages.fetched == fetched_before + 5


async def test_requests_without_an_answer_are_retried_by_the_next_start(done: Crawl, tmp_path: Path) -> None:
    """As if the frontier had never been lost."""
    first, *others = [record for record in done.records if record.success and not record.redirects][:30]
    failed = msgspec.structs.replace(first, success=False, reason="connect", status_code=0, body="")
    done.write(tmp_path / "pages.jsonl", [*others, failed])
    options = done.settings(tmp_path)
    result = await done.rebuild(tmp_path, options)
    assert result.info is not None
    assert (result.info.kept_failed, result.info.total().failed) == (1, {"connect": 1})
    went_on, asked = await done.go_on(tmp_path, options)
    assert first.url in asked
    assert went_on.summary.retried == 1


# --- crawls of a service, and crawls that are kept up to date ---------------------------------------------------------


async def test_a_crawl_of_a_service_is_filled_by_its_request(done: Crawl, tmp_path: Path) -> None:
    identity = {"appid": "shop", "crawlid": "prices"}
    half = [msgspec.structs.replace(one, **identity) for one in done.records[: len(done.records) // 2]]
    done.write(tmp_path / "pages.jsonl", [*half, *done.records[:5]])  # and records of another crawl
    lines = [json.dumps({**identity, "url": url, "maxdepth": 100, "spiderid": "link"}) for url in done.web.seeds()]
    requests = tmp_path / "requests.jsonl"
    requests.write_text("\n".join(lines))
    settings = done.parsed(tmp_path, done.settings(tmp_path))
    async with open_service(settings, settings.frontier) as service:
        await service.frontier.spiders.announce(Lane.FAST, ["link"])
        [(result, plan)] = await rebuild_requests(
            settings, str(requests), [str(tmp_path / "pages.jsonl")], service, replace=False
        )
        assert (result.records, result.others) == (len(half), 5)
        assert plan.crawl.pool == SHARED_POOL
        assert result.info is not None
        assert result.info.total().fetched == sum(record.success for record in half)
        worker = await service.frontier.open_leaseholder(pool=SHARED_POOL, spiders=["link"])
        leases = [lease for _ in range(30) for lease in await worker.lease(limit=100)]
        known = {url for record in half for url in (record.url, record.response_url)}
        assert leases
        assert not {lease.url for lease in leases} & known
        assert {lease.run.crawl.id.crawlid for lease in leases} == {"prices"}
        await worker.close()


def begin_rounds(web: FakeWeb, folder: Path, output: Path) -> None:
    """Begin to keep a crawl up to date, and interrupt its first round."""
    words = command(
        "crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "60/1", "--recrawl-once", "--links",
        "--crawl-id", "kept", "--data-dir", str(folder / "data"), "-o", str(output),
    )  # fmt: skip
    process = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: output.exists() and output.read_bytes().count(b"\n") >= 40, "some pages")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130


async def test_a_crawl_that_is_kept_up_to_date_gets_the_links_that_its_index_does_not_know(
    done: Crawl, tmp_path: Path
) -> None:
    """Also those of a page that is in the index and has no record: a kill came between the two."""
    web, output = done.web, tmp_path / "pages.jsonl"
    options = {"crawl__recrawl_once": True, "crawl__links": True, "crawl__output": (str(output),)}
    begin_rounds(web, tmp_path, output)
    lines = output.read_bytes().splitlines(keepends=True)
    pages = [record for record in read_records(output) if isinstance(record, PageRecord)]
    assert len(pages) == len(lines)
    killed = next(record for record in pages[1:] if record.success and record.links and not record.redirects)
    first = [record for record in pages if record is not killed]
    output.write_bytes(b"".join(line for line, record in zip(lines, pages, strict=True) if record is not killed))
    lost = {**options, **done.settings(tmp_path)}
    result = await done.rebuild(tmp_path, lost, crawl_id="kept")
    known = {url for record in pages for url in (record.url, record.response_url)}
    links = {link.url for record in first for link in record.links}
    assert result.queued == len(links - known)
    assert "1 page of the page index has no record: the next round fetches it again, for the links." in result.sentences
    before = len(web.log())
    for _ in range(2):
        await crawl(tmp_path, web.seeds(), web.resolve_overrides(), crawl_id="kept", **lost)
    asked = set(fetches(web.log()[before:]))
    assert not asked & {record.url for record in first if record.success}
    assert asked >= done.expected_after(first)


async def test_assets_in_a_folder_are_known_by_its_manifest(done: Crawl, tmp_path: Path) -> None:
    page = html("<img src=/a.png><img src=/b.png><img src=/gone.png><img src=/c.png>")
    image = Answer(headers=(("Content-Type", "image/png"),), body=b"x")
    with FakeWeb.start(WebSpec(hosts=1, pages=1)) as web:
        answers = {"/": page, "/gone.png": Answer(status=404), "/a.png": image, "/b.png": image, "/c.png": image}
        for path, answer in answers.items():
            web.mount("img.test", path, answer)
        seeds, places = [f"http://img.test:{web.port}/"], web.resolve_overrides()
        options = {"crawl__assets": ("images",), "crawl__assets_to": str(tmp_path / "assets")}
        await crawl(tmp_path, seeds, places, **done.settings(tmp_path, **options))
        manifest = tmp_path / "assets" / "manifest.jsonl"
        lines = manifest.read_bytes().splitlines(keepends=True)
        manifest.write_bytes(b"".join(lines[:-1]))
        before, lost = len(web.log()), done.settings(tmp_path, **options)
        result, _ = await rebuild_crawl(settings_for(tmp_path, places, **lost), seeds, [], quiet=True)
        assert result.info is not None
        assert (result.info.pages.fetched, result.info.assets.done, result.queued) == (1, 3, 1)
        await crawl(tmp_path, seeds, places, **lost)
        assert list(fetches(web.log()[before:])) == [json.loads(lines[-1])["url"]]


async def test_an_output_in_a_database_is_refused_with_advice(done: Crawl, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--records"):
        await done.rebuild(tmp_path, done.settings(tmp_path), records=["postgresql://me:secret@db.test/shop"])
