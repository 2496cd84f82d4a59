"""Many Scrapy processes on one frontier behave as one."""

from pathlib import Path

from gossamer.fakeweb import FakeWeb
from gossamer.fakeweb.expected import fetched
from gossamer.fakeweb.log import repeated
from tests.servers.scraping import Scraper, together
from tests.servers.valkey import Server


def whole(web: FakeWeb) -> set[str]:
    """Every page there is to find."""
    return fetched(web.expected())


async def test_one_process_crawls_all_of_it_once(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    with Scraper(tmp_path, "links", frontier=server.address, settings=own(tmp_path), arguments=seeds(web)) as scraper:
        done = scraper.finish()
    assert done.exit_code == 0, done.log
    assert {item["url"] for item in done.items} == whole(web)
    assert len(done.items) == len(whole(web))
    assert not repeated(web.log())
    assert done.stats["finish_reason"] == "finished"


async def test_three_processes_share_it(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    scrapers = [
        Scraper(tmp_path, "links", frontier=server.address, name=name, settings=own(tmp_path), arguments=seeds(web))
        for name in "abc"
    ]
    done = together(scrapers)
    items = [item["url"] for part in done for item in part.items]
    assert set(items) == whole(web)
    assert len(items) == len(whole(web))
    assert not repeated(web.log())


def own(folder: Path) -> dict[str, str]:
    """A prefix of keys for this test alone."""
    return {"GOSSAMER_PREFIX": f"t{abs(hash(folder)):x}", "GOSSAMER_WORKER__HEARTBEAT": "1"}


def seeds(web: FakeWeb) -> dict[str, str]:
    return {"seeds": ",".join(web.seeds())}
