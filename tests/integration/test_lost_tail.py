"""A server that loses the end of its append-only file, as `appendfsync everysec` may when the power goes."""

import asyncio
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState, DomainPolicy, Terms
from gossamer.sinks.jsonl import read_records
from gossamer_fakeweb import expected, fetched
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.valkey import Server, standalone


@pytest.mark.parametrize("processes", [1, 2])
async def test_what_the_server_forgot_is_done_again_and_nothing_is_missed(tmp_path: Path, processes: int) -> None:
    """A page's links stand in the file before its own end does: a file cut anywhere has lost both, or neither.
    Processes of one command share what they know of the frontier."""
    log = tmp_path / "store"
    log.mkdir()
    web_spec = WebSpec(hosts=6, pages=100, page_bytes=1000, out_degree=8)
    with (
        FakeWeb.start(web_spec) as web,
        standalone(tcp=True, options={"dir": str(log)}) as server,
        Fleet(tmp_path, resolve=web.resolve_overrides()) as fleet,
    ):
        pages = fetched(expected(web.site))
        frontier = await ValkeyFrontier.connect(server.address, dead_after_seconds=2.0)
        try:
            await frontier.set_domain_policy(None, DomainPolicy(hits=20, window_seconds=1.0, moderated=False))
            await crawls.open_crawl(frontier, web.seeds(), Terms())
            outputs = [tmp_path / f"pages{number}.jsonl" for number in range(3)]
            for output in outputs:
                fleet.start(frontier=server.address, output=output, flags=["--processes", str(processes)])
            for share in (0.3, 0.6):
                await asked(web, int(share * len(pages)))
                before = size(log)
                await asked(web, int((share + 0.1) * len(pages)))
                await asyncio.to_thread(cut_power, server, log, before)
            async with asyncio.timeout(60):
                ended = await crawls.until_over(frontier)
        finally:
            await frontier.close()
        fleet.drain()
    records = [record for file in outputs for record in read_records(file)]
    assert ended.state is CrawlState.FINISHED
    assert {record.url for record in records if record.success} == set(pages)
    assert ended.total().fetched == len(pages)


async def asked(web: FakeWeb, count: int) -> None:
    """Until so many requests have come."""
    async with asyncio.timeout(60):
        while True:
            if (await asyncio.to_thread(web.stats)).requests >= count:
                return
            await asyncio.sleep(0.01)


def size(folder: Path) -> int:
    """Bytes of the file that commands are appended to."""
    return appended(folder).stat().st_size


def appended(folder: Path) -> Path:
    [file] = folder.glob("appendonlydir/*.incr.aof")
    return file


def cut_power(server: Server, folder: Path, keep: int) -> None:
    """The server dies, and what it wrote since is gone: the last command is torn."""
    server.kill()
    file = appended(folder)
    assert file.stat().st_size > keep + 1000
    with file.open("r+b") as written:
        written.truncate(keep + 7)
    server.start()
