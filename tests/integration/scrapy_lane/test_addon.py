"""The add-on makes a project fast and takes nothing away from it."""

from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb
from gossamer_fakeweb import expected
from gossamer_fakeweb.expected import fetched
from gossamer_fakeweb.log import repeated
from tests.servers.scraping import Scraper, together
from tests.servers.valkey import Server

from .lane import HOST, at, counts, page, prefix

ADDON = '{"gossamer.scrapy.Addon": 0}'


def run(folder: Path, server: Server, web: FakeWeb, seeds: list[str], *, name: str = "one", **settings: str) -> Scraper:
    own = {"GOSSAMER_FRONTIER": server.address, "GOSSAMER_PREFIX": prefix(folder), "ADDONS": ADDON}
    return Scraper(
        folder, settings.pop("spider", "links"), frontier=None, name=name,
        settings={"LOG_LEVEL": "DEBUG"} | own | settings, arguments={"seeds": ",".join(seeds)},
    )  # fmt: skip


async def test_three_processes_with_the_addon_share_a_crawl(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    done = together(
        [
            run(tmp_path, server, web, web.seeds(), name=name, LOG_LEVEL="INFO", SCHEDULER_PERSIST="True")
            for name in "abc"
        ]
    )
    items = [item["url"] for part in done for item in part.items]
    assert sorted(items) == sorted(fetched(expected(web.site)))
    assert not repeated(web.log())


async def test_known_links_are_counted_however_early_they_are_dropped(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    web.mount(HOST, "/start", page("/a"))
    web.mount(HOST, "/a", page("/b", "/start"))
    web.mount(HOST, "/b", page("/a", "/a", "/start", "/b"))
    found = {}
    late = {"SPIDER_MIDDLEWARES": '{"gossamer.scrapy.addon.KnownLinks": null}'}
    for name, changed in (("with", {}), ("without", late)):
        settings = {"GOSSAMER_CRAWL_ID": name, "CONCURRENT_REQUESTS": "1", **changed}
        with run(tmp_path, server, web, [at(web, "/start")], name=name, **settings) as running:
            done = running.finish()
        found[name] = (sorted(item["url"] for item in done.items), done.stats["dupefilter/filtered"])
        assert done.stats["scheduler/enqueued"] == {"with": 3, "without": 8}[name]
    assert found["with"] == found["without"]


async def test_links_that_only_the_frontier_knows_are_counted_too(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/a", "/b"))
    web.mount(HOST, "/again", page("/a", "/b", "/c"))
    for path in ("/a", "/b", "/c"):
        web.mount(HOST, path, page())
    filtered = []
    for name in ("start", "again"):  # the second process knows nothing of what the first one has seen
        with run(tmp_path, server, web, [at(web, f"/{name}")], name=name, SCHEDULER_PERSIST="True") as running:
            filtered.append(running.finish().stats.get("dupefilter/filtered"))
    assert filtered == [None, 2]


async def test_receivers_of_dropped_requests_hear_of_known_links(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/a"))
    web.mount(HOST, "/a", page("/b"))
    web.mount(HOST, "/b", page("/a", "/b", "/start"))
    settings = {"spider": "watching", "CONCURRENT_REQUESTS": "1"}
    with run(tmp_path, server, web, [at(web, "/start")], **settings) as running:
        stats = running.finish().stats
    assert (stats["watched/scheduled"], stats["watched/dropped"], stats["dupefilter/filtered"]) == (6, 3, 3)


@pytest.mark.parametrize("reactor", ["twisted.internet.selectreactor.SelectReactor", ""])
async def test_downloads_work_in_every_reactor(tmp_path: Path, server: Server, web: FakeWeb, reactor: str) -> None:
    web.mount(HOST, "/start", page("/a"))
    web.mount(HOST, "/a", page())
    settings = {"SCHEDULER": "scrapy.core.scheduler.Scheduler", "TWISTED_REACTOR": reactor}
    with run(tmp_path, server, web, [at(web, "/start")], **settings) as running:
        done = running.finish()
    assert sorted(item["url"] for item in done.items) == [at(web, "/a"), at(web, "/start")]


async def test_what_the_project_sets_it_keeps(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page())
    with run(tmp_path, server, web, [at(web, "/start")], CONCURRENT_ITEMS="33") as running:
        done = running.finish()
    assert "'CONCURRENT_ITEMS': '33'" in done.log
    assert "asyncio event loop: uvloop.Loop" in done.log
    assert "'REQUEST_FINGERPRINTER_CLASS': 'gossamer.scrapy.RequestFingerprinter'" in done.log
    with run(
        tmp_path, server, web, [at(web, "/start")], name="two", ASYNCIO_EVENT_LOOP="asyncio.SelectorEventLoop"
    ) as running:
        assert "asyncio event loop: asyncio.unix_events._UnixSelectorEventLoop" in running.finish().log


async def test_a_project_of_its_own_scheduler_is_left_alone(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/a"))
    web.mount(HOST, "/a", page("/start"))
    with run(tmp_path, server, web, [at(web, "/start")], SCHEDULER="scrapy.core.scheduler.Scheduler") as running:
        done = running.finish()
    # Stock Scrapy fetches a start URL again when a page links to it.
    assert len(done.items) == 3


async def test_the_fingerprinter_takes_the_media_pipelines_requests_too(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    web.mount(HOST, "/start", page())
    for number in range(5):
        web.mount(HOST, f"/picture/{number}", page())
    with run(tmp_path, server, web, [at(web, "/start")], spider="pictures") as running:
        assert running.finish().items[0]["pictures"] == [200] * 5
    assert (await counts(tmp_path, server, "pictures")).fetched == 1
