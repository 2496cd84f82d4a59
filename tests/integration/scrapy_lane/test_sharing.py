"""Many Scrapy processes on one frontier behave as one, whatever becomes of some of them."""

import asyncio
import os
import random
import re
from pathlib import Path

import msgspec
import pytest
from scrapy import Request
from scrapy.utils.request import fingerprint as scrapys_fingerprint

from gossamer.errors import CrawlRefused
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.fakeweb.answer import plain
from gossamer.model.crawl import Crawl, CrawlId, Order, Terms
from gossamer.model.request import Batch
from gossamer.scrapy.options import UNSPACED
from gossamer_fakeweb import expected
from gossamer_fakeweb.expected import fetched
from gossamer_fakeweb.log import fetches, max_concurrency, max_in_any_window, repeated
from tests.servers.scraping import together
from tests.servers.valkey import Server, standalone, wait_until

from .lane import HOST, asking, at, counts, page, scraper

BLUR_SECONDS = 0.4
"""How late a process of a busy machine may send, and the web may note it."""
TOGETHER = {"SCHEDULER_PERSIST": "True"}
"""A process that has started only when the others have finished has nothing left to do; else it would begin anew."""


def whole(web: FakeWeb) -> set[str]:
    """Every page there is to find."""
    return fetched(expected(web.site))


async def test_one_process_crawls_all_of_it_once(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    with scraper(tmp_path, server, "links", web.seeds()) as running:
        done = running.finish()
    assert done.exit_code == 0, done.log
    assert {item["url"] for item in done.items} == whole(web)
    assert len(done.items) == len(whole(web))
    assert not repeated(web.log())
    assert done.stats["finish_reason"] == "finished"


async def test_a_process_that_is_started_while_the_frontier_is_away_waits_for_it(tmp_path: Path, web: FakeWeb) -> None:
    with standalone(tcp=True) as server:
        server.kill()
        with scraper(tmp_path, server, "links", web.seeds()[:1]) as running:
            wait_until(lambda: "Waiting for it." in running.log, "the process to say that it waits")
            server.start()
            done = running.finish()
    assert done.exit_code == 0, done.log
    assert done.stats["finish_reason"] == "finished"
    assert done.items


async def test_a_frontier_that_lost_its_data_is_not_finished(tmp_path: Path) -> None:
    with (
        standalone() as own,
        FakeWeb.start(WebSpec(hosts=3, pages=100, page_bytes=3000, latency_ms=50)) as web,
        scraper(tmp_path, own, "links", web.seeds(), CONCURRENT_REQUESTS_PER_DOMAIN="1") as running,
    ):
        wait_until(lambda: len(web.log()) >= 10, "the crawl to be under way")
        own.command("FLUSHALL")
        done = running.finish()
    assert done.stats["finish_reason"] == "frontier_lost", done.log
    assert "The frontier lost its data" in done.log


async def test_three_processes_share_it(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    done = together([scraper(tmp_path, server, "links", web.seeds(), name=name, **TOGETHER) for name in "abc"])
    items = [item["url"] for part in done for item in part.items]
    assert set(items) == whole(web)
    assert len(items) == len(whole(web))
    assert not repeated(web.log())
    assert [part.stats["finish_reason"] for part in done] == ["finished"] * 3


async def test_what_start_yields_comes_once_a_crawl(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page())
    local = tmp_path / "local.txt"
    local.write_text("from a file")

    def crawl(names: str) -> list[str]:
        arguments = {"file": str(local)}
        running = [
            scraper(tmp_path, server, "starting", [at(web, "/start")], name=n, arguments=arguments) for n in names
        ]
        return sorted(item["started"] for part in together(running) for item in part.items if "started" in item)

    once = sorted(["one", "two", "hello", "from a file"])
    assert crawl("abc") == once
    assert crawl("d") == once, "the next crawl begins anew"


async def test_extensions_find_what_they_read_of_a_scheduler(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page())
    local = tmp_path / "local.txt"
    local.touch()
    arguments = {"file": str(local)}
    with scraper(tmp_path, server, "starting", [at(web, "/start")], arguments=arguments) as running:
        done = running.finish()
    [found] = [item for item in done.items if "length" in item]
    assert found["known"] == [True, False]
    assert found["fingerprint"] == scrapys_fingerprint(Request(at(web, "/start"))).hex()
    assert found["length"] >= 0
    assert done.stats["read/by_an_extension"] == 1


async def test_processes_that_were_started_together_are_one_run_however_long_one_loads(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    slow = {"EXTENSIONS": '{"tests.integration.scrapy_lane.spiders.LoadsSlowly": 0}', "LOADS_WHEN": str(pipe)}
    with scraper(tmp_path, server, "links", web.seeds(), name="late", **slow) as late:
        scraper(tmp_path, server, "links", web.seeds()).finish()
        pipe.write_bytes(b"")
        done = late.finish()
    assert done.exit_code == 0
    assert not done.items
    assert not repeated(web.log())
    assert set(fetches(web.log())) == whole(web)


@pytest.mark.parametrize("seed", range(int(os.environ.get("KILLS", "3"))))
async def test_a_killed_process_loses_nothing(tmp_path: Path, server: Server, seed: int) -> None:
    chance = random.Random(seed)
    with FakeWeb.start(WebSpec(hosts=4, pages=60, page_bytes=3000, latency_ms=20)) as web:
        scrapers = [scraper(tmp_path, server, "links", web.seeds(), name=name, **TOGETHER) for name in "abc"]
        after = chance.randrange(20, 200)
        wait_until(lambda: len(web.log()) >= after, "the crawl to be under way")
        async with asking(tmp_path, server) as frontier:
            scrapers[0].kill()
            pid = f"-{scrapers[0].process.pid}-"
            held = sum(worker.leased for worker in await frontier.workers() if pid in worker.name)
        done = together(scrapers[1:])
        log = web.log()
        assert set(fetches(log)) == whole(web)
        assert len(repeated(log)) <= held
        assert {item["url"] for part in (*done, scrapers[0]) for item in part.items} == whole(web)


async def test_after_ctrl_c_the_next_process_goes_on(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=4, pages=60, page_bytes=3000, latency_ms=100)) as web:
        with scraper(tmp_path, server, "links", web.seeds()) as first:
            wait_until(lambda: len(web.log()) >= 30, "the crawl to be under way")
            first.interrupt()
            stopped = first.finish()
        assert stopped.stats["finish_reason"] == "shutdown"
        assert 0 < len(stopped.items) < len(whole(web))
        with scraper(tmp_path, server, "links", web.seeds(), name="two") as second:
            done = second.finish()
        items = [item["url"] for item in stopped.items + done.items]
        assert sorted(items) == sorted(whole(web))
        assert not repeated(web.log())


async def test_a_spider_that_keeps_state_on_itself_is_warned_where_processes_share(
    tmp_path: Path, web: FakeWeb
) -> None:
    with standalone(options={"appendfsync": "everysec"}) as server:  # no other test's workers
        with scraper(tmp_path, server, "counting", web.seeds(), name="alone", GOSSAMER_CRAWL_ID="alone") as alone:
            assert "Pages change attributes" not in alone.finish().log
        for spider, warns in (("counting", True), ("links", False), ("rules", False)):
            at_once = {"DOWNLOAD_DELAY": "0.01", "CONCURRENT_REQUESTS": "2"} | TOGETHER
            both = [scraper(tmp_path, server, spider, web.seeds(), name=spider + name, **at_once) for name in "ab"]
            done = together(both)
            if not warns:
                assert not any("Pages change attributes" in part.log for part in done)
                continue
            warned = [part.log for part in done if "Pages change attributes of the spider: " in part.log]
            assert warned
            for log in warned:
                assert log.count("Pages change attributes") == 1
                assert re.search("spider: (pages, seen|seen, pages). .*crawl with one process", log)


async def test_a_finished_crawl_begins_anew_or_goes_on(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/leaf"))
    web.mount(HOST, "/leaf", page())

    def run(name: str, **settings: str) -> list[str]:
        with scraper(tmp_path, server, "links", [at(web, "/start")], name=name, **settings) as running:
            return [item["url"] for item in running.finish().items]

    both = [at(web, "/start"), at(web, "/leaf")]
    assert run("one") == both
    assert run("two") == both
    assert run("three", SCHEDULER_PERSIST="True") == []
    assert run("four", GOSSAMER_CRAWL_ID="another") == both


async def test_a_process_that_stays_knows_nothing_of_the_next_run(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/leaf"))
    web.mount(HOST, "/leaf", page())
    with scraper(tmp_path, server, "links", [at(web, "/start")], GOSSAMER_STAY_OPEN="True") as staying:
        wait_until(lambda: len(web.log()) == 2, "the first run to be fetched")
        async with asking(tmp_path, server) as frontier:
            mine = CrawlId("scrapybot", "links")
            first = Crawl(id=mine, pool=f"scrapy-{mine.token}", order=Order.LIFO, rate=UNSPACED, concurrency=8)
            while True:
                try:
                    run = await frontier.open_crawl(first, fresh=True)
                    break
                except CrawlRefused:  # not finished yet
                    await asyncio.sleep(0.01)
            url = at(web, "/start")
            await frontier.spiders.refresh(["links"])
            mark = frontier.spiders.fingerprint("links", url)
            await frontier.add(run, Terms(), [Batch("links", "site0.test", 0, 0, [url], [mark])], seeds=True)
        wait_until(lambda: len(web.log()) == 4, "all of the second run to be fetched")
        wait_until(lambda: len(staying.items) == 4, "its items")


async def test_a_callback_that_blocks_is_no_death(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    """For more than two heartbeats, four times, while another process would take over."""
    slow = [f"/slow{number}" for number in range(4)]
    web.mount(HOST, "/start", page(*slow))
    for path in slow:
        web.mount(HOST, path, page())
    scrapers = [scraper(tmp_path, server, "blocking", [at(web, "/start")], name=name, **TOGETHER) for name in "ab"]
    done = together(scrapers)
    items = sorted(item["url"] for part in done for item in part.items)
    assert items == sorted(at(web, path) for path in ("/start", *slow))
    assert not repeated(web.log())


async def test_all_who_wait_for_a_robots_txt_obey_it(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    """Not only the first of them, as in Scrapy."""
    rules = plain("User-agent: *\nDisallow: /no\n")
    web.mount(HOST, "/robots.txt", msgspec.structs.replace(rules, delay_ms=500.0))
    seeds = [at(web, path) for path in ("/no1", "/no2", "/no3", "/yes")]
    web.mount(HOST, "/yes", page())
    at_once = {"CONCURRENT_REQUESTS_PER_DOMAIN": "8", "ROBOTSTXT_OBEY": "True"}
    with scraper(tmp_path, server, "links", seeds, **at_once) as running:
        done = running.finish()
    assert [record.path for record in web.log() if record.path != "/robots.txt"] == ["/yes"]
    assert done.stats["robotstxt/forbidden"] == 3


async def test_stop_ends_all_of_them(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=2, pages=2000, page_bytes=1000, latency_ms=20)) as web:
        scrapers = [scraper(tmp_path, server, "links", web.seeds(), name=name, **TOGETHER) for name in "ab"]
        wait_until(lambda: len(web.log()) >= 30, "the crawl to be under way")
        wait_until(lambda: all("Crawling " in running.log for running in scrapers), "both to be in it")
        async with asking(tmp_path, server) as frontier:
            await frontier.stop_crawl(CrawlId("scrapybot", "links"))
        done = together(scrapers)
        assert [part.stats["finish_reason"] for part in done] == ["stopped", "stopped"]
        with scraper(tmp_path, server, "links", web.seeds(), name="late") as late:
            refused = late.finish()
        assert not refused.items
        assert refused.stats["finish_reason"] == "refused"
        assert "Traceback" not in refused.log
        assert "begins another crawl" in refused.log


@pytest.mark.parametrize("spider", ["endless", "staying"])
async def test_stop_ends_a_spider_that_wants_to_stay(tmp_path: Path, server: Server, web: FakeWeb, spider: str) -> None:
    with scraper(tmp_path, server, spider, web.seeds()) as running:
        wait_until(lambda: len(fetches(web.log())) == len(whole(web)), "all of it to be fetched")
        async with asking(tmp_path, server) as frontier:
            await frontier.stop_crawl(CrawlId("scrapybot", spider))
        assert running.finish().stats["finish_reason"] == "stopped"


async def test_a_spider_closes_amid_its_start_requests(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    with scraper(tmp_path, server, "flood", [at(web, "/")]) as running:
        done = running.finish()
    assert done.stats["finish_reason"] == "enough"
    assert "could not be reported" not in done.log
    assert (await counts(tmp_path, server, "flood")).added == done.stats["scheduler/enqueued"]


async def test_the_shared_budget_is_what_the_project_asks_for(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=12, page_bytes=1000)) as web:
        together(
            [
                scraper(tmp_path, server, "links", web.seeds(), name=name, DOWNLOAD_DELAY="0.5", **TOGETHER)
                for name in "abc"
            ]
        )
        log = web.log()
        assert set(fetches(log)) == whole(web)
        assert max_in_any_window(log, HOST, 0.5 - BLUR_SECONDS) == 1
        assert max_in_any_window(log, HOST, 1.0 - BLUR_SECONDS) <= 2


async def test_the_cap_is_the_whole_crawls(tmp_path: Path, server: Server) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=40, page_bytes=1000, latency_ms=50)) as web:
        together(
            [
                scraper(
                    tmp_path, server, "links", web.seeds(), name=name, CONCURRENT_REQUESTS_PER_DOMAIN="2", **TOGETHER
                )
                for name in "abc"
            ]
        )
        assert max_concurrency(web.log(), HOST) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"DOWNLOAD_DELAY": "0.5"}, {}),
        ({"DOWNLOAD_DELAY": "0.2"}, {"DOWNLOAD_DELAY": "0.2"}),
        ({"CONCURRENT_REQUESTS_PER_DOMAIN": "1"}, {}),
        ({}, {}),
    ],
    ids=["a delay", "equal delays", "one in flight", "no limits"],
)
async def test_two_crawls_of_one_domain_take_turns(
    tmp_path: Path, server: Server, one: dict[str, str], other: dict[str, str]
) -> None:
    """The second one begins when the first one has all hits and requests in flight."""
    with FakeWeb.start(WebSpec(hosts=1, pages=5000, page_bytes=1000, latency_ms=100)) as web:
        first = scraper(tmp_path, server, "links", web.seeds(), name="first", GOSSAMER_CRAWL_ID="first", **other)
        wait_until(lambda: len(first.items) >= 5, "the first crawl to be under way")
        second = scraper(tmp_path, server, "links", web.seeds(), name="second", GOSSAMER_CRAWL_ID="second", **one)
        with first, second:
            wait_until(lambda: len(second.items) >= 10, "the second crawl to get its part")
            before = len(first.items)
            wait_until(lambda: len(first.items) >= before + 5, "the first crawl to go on")


async def test_what_bypasses_the_scheduler_takes_hits_too(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page())
    for number in range(5):
        web.mount(HOST, f"/picture/{number}", page())
    with scraper(tmp_path, server, "pictures", [at(web, "/start")], DOWNLOAD_DELAY="0.5") as running:
        done = running.finish()
    assert done.items == [{"url": at(web, "/start"), "pictures": [200] * 5}]
    log = web.log()
    assert len(log) == 6
    assert max_in_any_window(log, HOST, 0.5 - BLUR_SECONDS) == 1


async def test_what_a_site_asks_for_holds_for_all(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/a", "/b", "/c"))
    web.mount(HOST, "/robots.txt", plain("User-agent: *\nCrawl-delay: 0.6\n"))
    for path in ("/b", "/c"):
        web.mount(HOST, path, page())
    web.mount(HOST, "/a", [plain("", status=503, headers=(("Retry-After", "1"),)), page()])
    with scraper(tmp_path, server, "links", [at(web, "/start")], ROBOTSTXT_OBEY="True") as running:
        done = running.finish()
    assert {item["url"] for item in done.items} == {at(web, path) for path in ("/start", "/a", "/b", "/c")}
    log = web.log()
    assert max_in_any_window(log, HOST, 0.6 - BLUR_SECONDS) == 1
    busy = next(record for record in log if record.status == 503)
    assert all(record.started - busy.started > 1.0 - BLUR_SECONDS for record in log if record.started > busy.started)


async def test_valkey_restarted_in_mid_crawl(tmp_path: Path) -> None:
    with (
        standalone(options={"appendfsync": "always"}) as server,
        FakeWeb.start(WebSpec(hosts=4, pages=60, page_bytes=3000, latency_ms=20)) as web,
    ):
        scrapers = [scraper(tmp_path, server, "links", web.seeds(), name=name, **TOGETHER) for name in "ab"]
        wait_until(lambda: len(web.log()) >= 40, "the crawl to be under way")
        server.kill()
        server.start()
        done = together(scrapers)
        items = [item["url"] for part in done for item in part.items]
        assert set(items) == whole(web)
        found = await counts(tmp_path, server, "links")
        assert (found.queued, found.leased, found.failed) == (0, 0, {})


async def test_a_page_that_kills_its_worker_is_given_up(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/deadly", "/fine"))
    web.mount(HOST, "/deadly", page())
    web.mount(HOST, "/fine", page())
    scrapers = []
    for name in "abc":
        with scraper(tmp_path, server, "deadly", [at(web, "/start")], name=name) as victim:
            assert victim.finish().exit_code == -9
            scrapers.append(victim)
    with scraper(tmp_path, server, "deadly", [at(web, "/start")], name="last") as last:
        assert last.finish().stats["finish_reason"] == "finished"
    assert {item["url"] for one in (*scrapers, last) for item in one.items} == {at(web, "/start"), at(web, "/fine")}
    found = await counts(tmp_path, server, "deadly")
    assert found.failed == {"worker_died": 1}
