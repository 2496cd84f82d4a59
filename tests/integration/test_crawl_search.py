"""Commands find the crawl that is meant, however many others there are."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gossamer.cli.commands import crawls as crawls_command
from gossamer.cli.commands.crawls import find_crawl, list_running_first
from gossamer.errors import BadInput
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, CrawlState, Terms
from gossamer.valkey.embedded import EmbeddedValkey
from tests.servers import crawls

FINISHED, RUNNING, SHOWN = 40, 3, 6
URL = "http://b.test/wanted"


@pytest.fixture
async def frontier(tmp_path: Path) -> AsyncIterator[ValkeyFrontier]:
    async with EmbeddedValkey(tmp_path / "valkey", name="test", appendfsync="no") as server:
        frontier = await ValkeyFrontier.connect(server.address, shards=2)
        for number in range(FINISHED + RUNNING):
            crawl = Crawl(id=CrawlId(f"app{number % 2}", f"c{number}"))
            await crawls.open_crawl(frontier, [URL, f"http://a{number}.test/"], Terms(), crawl=crawl)
            if number % 20 != 1:  # 1, 21 and 41 go on
                await frontier.stop_crawl(crawl.id)
        yield frontier
        await frontier.close()


async def test_running_crawls_are_listed_before_all_others(frontier: ValkeyFrontier) -> None:
    listed, more = await list_running_first(frontier, limit=SHOWN)
    assert [info.state is CrawlState.RUNNING for info in listed] == [True] * RUNNING + [False] * (SHOWN - RUNNING)
    assert len({info.crawl for info in listed}) == SHOWN
    assert more
    listed, more = await list_running_first(frontier, limit=1)
    assert ([info.state for info in listed], more) == ([CrawlState.RUNNING], True)
    for limit in (FINISHED + RUNNING, 1000):
        listed, more = await list_running_first(frontier, limit=limit)
        assert (len(listed), more) == (FINISHED + RUNNING, False)
    listed, _ = await list_running_first(frontier, appid="app0", limit=SHOWN)
    assert {info.state for info in listed} == {CrawlState.STOPPED}


async def test_a_named_crawl_is_found_among_more_than_are_searched_without_a_name(
    frontier: ValkeyFrontier, tmp_path: Path
) -> None:
    """Only its name is known. Once the first 500 crawls alone were searched."""
    for number in range(540):
        await frontier.open_crawl(Crawl(id=CrawlId(f"many{number % 3}", f"m{number}")))
    searched, more = await list_running_first(frontier, limit=500)
    assert more
    missed = {f"m{number}" for number in range(540)} - {info.crawl.crawlid for info in searched}
    for name in missed:
        found, _ = await find_crawl(frontier, tmp_path, URL, appid=None, crawl_id=name)
        assert found.id == CrawlId(f"many{int(name[1:]) % 3}", name)
    with pytest.raises(BadInput, match="there is no crawl m540"):
        await find_crawl(frontier, tmp_path, URL, appid=None, crawl_id="m540")


async def test_a_url_is_explained_by_a_crawl_that_runs(
    frontier: ValkeyFrontier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crawls_command, "_CRAWLS_SEARCHED", SHOWN)
    found, known = await find_crawl(frontier, tmp_path, URL, appid=None, crawl_id=None)
    assert found.info is not None
    assert (found.info.state, known is not None and known.place) == (CrawlState.RUNNING, "queued")
