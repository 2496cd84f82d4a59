"""Spiders written for plain Scrapy get from the frontier exactly what they put in."""

import re
from pathlib import Path

import msgspec
import pytest

from gossamer.fakeweb import FakeWeb
from gossamer.fakeweb.answer import Answer, Ending, html, plain, redirect
from gossamer_fakeweb.log import fetches
from tests.servers.scraping import Scraped, Scraper
from tests.servers.valkey import Server

from .lane import HOST, at, counts, page, scraper


def fetched(web: FakeWeb) -> dict[str, int]:
    """How often each path was asked for."""
    return {url.partition(f":{web.port}")[2]: count for url, count in fetches(web.log()).items()}


def run(folder: Path, server: Server, spider: str, web: FakeWeb, path: str = "/", **settings: str) -> Scraped:
    with scraper(folder, server, spider, [at(web, path)], **settings) as running:
        return running.finish()


async def test_requests_come_back_as_they_were(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    for path in ("/kwargs", "/form", "/json", "/item", "/twice"):
        web.mount(HOST, path, page())
    web.mount(HOST, "/teapot", plain("short and stout", status=418))
    done = run(tmp_path, server, "everything", web)
    items = {item["what"]: item for item in done.items}
    assert items["kwargs"] == {
        "what": "kwargs",
        "text": "höre",
        "pair": "(1, 2)",
        "when": "datetime.datetime(2026, 1, 2, 0, 0, tzinfo=datetime.timezone.utc)",
        "names": ["a", "b"],
        "nested": "{'bytes': b'\\x00\\xff', 3: None}",
        "two": ["one", "two"],
        "flags": ["kept"],
        "depth": 1,
    }
    assert items["FormRequest"] | {"kind": ""} == {
        "what": "FormRequest", "method": "POST", "body": "user=me", "kind": "",
    }  # fmt: skip
    assert items["JsonRequest"] == {
        "what": "JsonRequest", "method": "POST", "body": '{"a": [1, 2.5]}', "kind": "application/json",
    }  # fmt: skip
    assert items["item"] == {"what": "item", "class": "Thing", "name": "n", "tags": ["t"]}
    assert items["error"] == {"what": "error", "status": 404, "url": at(web, "/missing")}
    assert items["teapot"] == {"what": "teapot", "status": 418}
    assert [item["what"] for item in done.items].count("twice") == 2
    assert fetched(web)["/kwargs"] == 1
    found = await counts(tmp_path, server, "everything")
    assert (found.fetched, found.failed, found.queued, found.leased) == (8, {"http_404": 1}, 0, 0)


async def test_a_callback_that_breaks_fails_its_request_alone(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    for path in ("/good", "/bad", "/fine"):
        web.mount(HOST, path, page())
    done = run(tmp_path, server, "breaking", web)
    assert {item["url"] for item in done.items} == {at(web, path) for path in ("/good", "/bad", "/fine")}
    found = await counts(tmp_path, server, "breaking")
    assert (found.fetched, found.failed) == (3, {"spider_error": 1})


@pytest.mark.parametrize(
    ("spider", "why"),
    [
        ("lambda", "its callback .*lambda.* is not a method of the spider; make it one"),
        ("large", "it takes [0-9,]+ bytes; at most 1,032,192 are stored"),
    ],
)
async def test_a_request_that_cannot_be_stored_runs_here_and_says_so(
    tmp_path: Path, server: Server, web: FakeWeb, spider: str, why: str
) -> None:
    for path in ("/good", "/fine"):
        web.mount(HOST, path, page())
    done = run(tmp_path, server, spider, web)
    assert {item["url"] for item in done.items} == {at(web, "/good"), at(web, "/fine")}
    assert re.search(f"is kept in this process: {why}\n", done.log)
    found = await counts(tmp_path, server, spider)
    assert (found.fetched, found.leased) == (2, 0)


async def test_a_process_that_cannot_settle_ends_and_gives_back_what_it_has(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    """It would hold its requests for ever, as it lives, and the crawl would never end."""
    for path in ("/good", "/bad", "/fine"):
        web.mount(HOST, path, page())
    own = {
        "FEED_STORAGES": '{"broken": "tests.integration.scrapy_lane.spiders.BrokenStorage"}',
        "FEEDS": '{"broken://here": {"format": "jsonlines"}}',
    }
    done = run(tmp_path, server, "breaking", web, **own)
    assert "this feed is of no use" in done.log
    assert "A background task of the scheduler failed" in done.log
    found = await counts(tmp_path, server, "breaking")
    assert (found.fetched, found.leased, found.queued) == (1, 0, 3), "before its first item a feed has no file"


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        ({}, [5, 4, 3, 2, 1, 0]),
        ({"SCHEDULER_MEMORY_QUEUE": "scrapy.squeues.FifoMemoryQueue"}, [0, 1, 2, 3, 4, 5]),
        ({"GOSSAMER_QUEUE_ORDER": "fifo"}, [0, 1, 2, 3, 4, 5]),
    ],
)
async def test_the_projects_own_order(
    tmp_path: Path, server: Server, web: FakeWeb, settings: dict[str, str], order: list[int]
) -> None:
    for number in range(6):
        web.mount(HOST, f"/order/{number}", page())
    done = run(tmp_path, server, "order", web, CONCURRENT_REQUESTS="1", **settings)
    assert [item["url"] for item in done.items] == [at(web, f"/order/{number}") for number in order]


async def test_redirects_stay_one_request(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/hop", "/hop2"))
    web.mount(HOST, "/hop", redirect("/hop1"))
    web.mount(HOST, "/hop1", redirect("/end"))
    web.mount(HOST, "/hop2", redirect("/end"))
    web.mount(HOST, "/end", page())
    done = run(tmp_path, server, "links", web, "/start")
    assert sorted(item["url"] for item in done.items) == [at(web, "/end"), at(web, "/start")]
    assert fetched(web) == {"/start": 1, "/hop": 1, "/hop1": 1, "/hop2": 1, "/end": 1}
    found = await counts(tmp_path, server, "links")
    assert (found.added, found.fetched, found.dropped) == (3, 2, {"duplicate": 1})


OTHER_HOST = "site1.test"
REDIRECTS = {
    "to a page that was fetched": {"/start": page("/leaf", "/hop"), "/hop": redirect("/leaf")},
    "twice to one page": {"/start": page("/hop", "/hop2"), "/hop": redirect("/leaf"), "/hop2": redirect("/leaf")},
    "in steps": {"/start": page("/leaf", "/hop"), "/hop": redirect("/hop2"), "/hop2": redirect("/leaf")},
    "to a page that is linked later": {
        "/start": page("/hop"),
        "/hop": redirect("/list"),
        "/list": page("/leaf", "/hop"),
    },
    "to itself": {"/start": page("/leaf", "/self"), "/self": redirect("/self")},
    "in a circle": {"/start": page("/hop"), "/hop": redirect("/hop2"), "/hop2": redirect("/hop")},
    "by a meta element": {
        "/start": page("/leaf", "/hop"),
        "/hop": html('<meta http-equiv="refresh" content="0;/leaf">'),
    },
    "twice to another domain": {"/start": page("/away", "/away2"), "/away": OTHER_HOST, "/away2": OTHER_HOST},
    "to a page of a start request": {
        "/start": redirect("/list"),
        "/list": page("/leaf", "/hop"),
        "/hop": redirect("/leaf"),
    },
}


@pytest.mark.parametrize("filters", ["scrapy.dupefilters.RFPDupeFilter", "scrapy.dupefilters.BaseDupeFilter"])
@pytest.mark.parametrize("name", REDIRECTS)
async def test_redirects_to_known_pages_are_dropped_and_counted_as_in_scrapy(
    tmp_path: Path, server: Server, web: FakeWeb, name: str, filters: str
) -> None:
    for path in ("/leaf", *REDIRECTS[name]):
        answer = REDIRECTS[name].get(path, page())
        web.mount(HOST, path, redirect(f"http://{OTHER_HOST}:{web.port}/leaf") if answer == OTHER_HOST else answer)
    web.mount(OTHER_HOST, "/leaf", page())
    found = []
    for frontier in (None, server):
        web.reset()
        settings = {"DUPEFILTER_CLASS": filters, "REDIRECT_MAX_TIMES": "5", "DEPTH_LIMIT": "4"}
        if frontier is not None:
            with scraper(tmp_path, frontier, "links", [at(web, "/start")], **settings) as running:
                done = running.finish()
        else:
            arguments = {"seeds": at(web, "/start")}
            with Scraper(
                tmp_path, "links", frontier=None, name="scrapy", settings=settings, arguments=arguments
            ) as one:
                done = one.finish()
        urls = sorted(item["url"] for item in done.items)
        found.append((urls, fetched(web), done.stats.get("dupefilter/filtered", 0)))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("count", "settings", "arguments"),
    [
        (1, {}, {}),
        (5, {}, {}),
        (3, {"DOWNLOAD_DELAY": "0.3", "RANDOMIZE_DOWNLOAD_DELAY": "False"}, {}),
        (1, {}, {"local": "yes"}),
        (3, {"CONCURRENT_REQUESTS_PER_DOMAIN": "1"}, {}),
    ],
    ids=["one", "five", "with a delay", "one that cannot be stored", "one at a time"],
)
async def test_requests_before_a_start_that_closes_the_spider_are_fetched_as_in_scrapy(
    tmp_path: Path, server: Server, web: FakeWeb, count: int, settings: dict[str, str], arguments: dict[str, str]
) -> None:
    paths = [f"/seed{number}" for number in range(count)]
    for path in paths:
        links = (
            [] if settings else [f"{path}/link"]
        )  # where start requests wait for each other, links come between them
        web.mount(HOST, path, msgspec.structs.replace(page(*links), delay_ms=100.0))
    seeds = [at(web, path) for path in paths]
    found = []
    for frontier in (None, server):
        web.reset()
        if frontier is not None:
            one = scraper(tmp_path, frontier, "ending", seeds, arguments=arguments, **settings)
        else:
            given = {"seeds": ",".join(seeds)} | arguments
            one = Scraper(tmp_path, "ending", frontier=None, name="scrapy", settings=settings, arguments=given)
        with one:
            done = one.finish()
        found.append((sorted(item["url"] for item in done.items), fetched(web), done.stats["finish_reason"]))
    assert found[0] == found[1]
    assert len(found[0][1]) == count + len(arguments)


async def test_a_start_that_closes_the_spider_leaves_what_exceeds_the_downloader(
    tmp_path: Path, server: Server, web: FakeWeb
) -> None:
    seeds = [at(web, f"/seed{number}") for number in range(20)]
    for number in range(20):
        web.mount(HOST, f"/seed{number}", msgspec.structs.replace(page(), delay_ms=200.0))
    settings = {"CONCURRENT_REQUESTS": "4", "CONCURRENT_REQUESTS_PER_DOMAIN": "4"}
    with scraper(tmp_path, server, "ending", seeds, **settings) as running:
        done = running.finish()
    found = await counts(tmp_path, server, "ending")
    assert (done.stats["finish_reason"], found.leased) == ("no more", 0)
    assert found.fetched >= 4
    assert found.queued == 20 - found.fetched > 0


async def test_a_redirect_to_another_domain_goes_on_there(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/away"))
    web.mount(HOST, "/away", redirect(f"http://site1.test:{web.port}/there"))
    web.mount("site1.test", "/there", page())
    done = run(tmp_path, server, "links", web, "/start")
    assert {item["url"] for item in done.items} == {at(web, "/start"), f"http://site1.test:{web.port}/there"}
    found = await counts(tmp_path, server, "links")
    assert (found.fetched, found.dropped) == (2, {"moved": 1})


async def test_a_retry_is_the_same_request(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/shaky", "/dead"))
    web.mount(HOST, "/shaky", [plain("later", status=503), page()])
    web.mount(HOST, "/dead", plain("never", status=503))
    done = run(tmp_path, server, "links", web, "/start", RETRY_TIMES="2")
    assert {item["url"] for item in done.items} == {at(web, "/start"), at(web, "/shaky")}
    assert fetched(web) == {"/start": 1, "/shaky": 2, "/dead": 3}
    found = await counts(tmp_path, server, "links")
    assert (found.added, found.fetched, found.failed) == (3, 2, {"http_503": 1})


async def test_crawl_spider_rules_and_depth(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    done = run(tmp_path, server, "rules", web, DEPTH_LIMIT="1")
    assert done.items
    assert len({item["url"] for item in done.items}) == len(done.items)
    assert all(item["rule"] == 0 and item["text"] for item in done.items)
    assert done.stats["request_depth_max"] == 1
    assert "scheduler/unserializable" not in done.stats


async def test_a_projects_own_fingerprinter_decides(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/one?a=1", "/one?a=2", "/two"))
    for path in ("/one?a=1", "/one?a=2", "/two"):
        web.mount(HOST, path, page())
    done = run(
        tmp_path, server, "links", web, "/start",
        REQUEST_FINGERPRINTER_CLASS="tests.integration.scrapy_lane.spiders.HostOnly",
    )  # fmt: skip
    assert len(done.items) == 3


@pytest.mark.parametrize("addon", [False, True])
async def test_what_scrapy_takes_for_one_request_is_fetched_once(
    tmp_path: Path, server: Server, web: FakeWeb, addon: bool
) -> None:
    links = ("/f?a=1&b=2", "/f?b=2&a=1", "/e?x", "/e?x=", "/~joe", "/%7Ejoe")
    web.mount(HOST, "/start", page(*links))
    for path in links:
        web.mount(HOST, path, page(*links))
    settings = {"ADDONS": '{"gossamer.scrapy.Addon": 0}'} if addon else {}
    done = run(tmp_path, server, "links", web, "/start", **settings)
    assert len(done.items) == 4, sorted(item["url"] for item in done.items)


async def test_without_a_dupefilter_nothing_is_a_duplicate(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/a", "/a"))
    web.mount(HOST, "/a", page())
    none = "scrapy.dupefilters.BaseDupeFilter"
    done = run(tmp_path, server, "links", web, "/start", DUPEFILTER_CLASS=none)
    assert sorted(item["url"] for item in done.items) == [at(web, "/a"), at(web, "/a"), at(web, "/start")]


async def test_a_connection_that_fails_is_recorded(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/cut"))
    web.mount(HOST, "/cut", Answer(ending=Ending.REFUSE))
    done = run(tmp_path, server, "links", web, "/start", RETRY_ENABLED="False")
    assert [item["url"] for item in done.items] == [at(web, "/start")]
    found = await counts(tmp_path, server, "links")
    assert found.fetched == 1
    assert sum(found.failed.values()) == 1
