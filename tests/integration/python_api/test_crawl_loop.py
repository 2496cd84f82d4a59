"""`gossamer.crawl` as programs use it: loops over pages, left early or not, with and without asyncio."""

import asyncio
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.crawling import background
from gossamer.crawling.background import BackgroundTask
from gossamer.errors import AlreadyFinished, BadInput, NothingFetched
from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.net.resolve import parse_override
from gossamer_fakeweb import graph
from tests.servers.crawling import records_of
from tests.servers.program import python

SPEC = WebSpec(hosts=2, pages=60)

# By a thread: a crawl that does not stop would also hold up what a signal interrupts.
pytestmark = pytest.mark.timeout(120, method="thread")


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as web:
        yield web


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with an empty folder for temporary files."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def fast(web: FakeWeb, **options: Any) -> dict[str, Any]:
    """Return options for a crawl of a web that is ours."""
    return {
        "resolve": dict(map(parse_override, web.resolve_overrides())),
        "rate": 10_000,
        "domain_concurrency": 16,
        **options,
    }


def test_a_loop_gets_every_page_once_and_leaves_no_file(web: FakeWeb, folder: Path) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web))
    urls = [page.record.url for page in crawl]
    assert sorted(urls) == sorted(graph(web.site))
    assert crawl.result.finished
    assert crawl.result.pages == len(urls)
    assert not list((folder / "work").iterdir())
    assert not list((folder / "temporary").iterdir())


def test_async_loops_get_the_same(web: FakeWeb) -> None:
    async def read() -> list[str]:
        return [page.record.url async for page in gossamer.crawl(*web.seeds(), **fast(web))]

    assert sorted(asyncio.run(read())) == sorted(graph(web.site))


async def test_a_plain_loop_works_while_an_event_loop_runs_as_in_a_notebook(web: FakeWeb) -> None:
    assert len(list(gossamer.crawl(*web.seeds(), **fast(web, max_pages=5)))) == 5


def test_a_loop_that_is_left_loses_nothing(web: FakeWeb, folder: Path) -> None:
    """The page in hand comes again, because the program may have failed on it; every other page comes once."""
    options = fast(web, data_dir=folder / "data")
    seen: list[str] = []
    for count in (1, 20, 33):
        for page in gossamer.crawl(*web.seeds(), **options):
            if not count:
                break
            seen.append(page.record.url)
            count -= 1
    seen += [page.record.url for page in gossamer.crawl(*web.seeds(), **options)]
    assert sorted(seen) == sorted(graph(web.site))


def test_an_error_in_the_loop_stops_the_crawl_and_keeps_the_page(web: FakeWeb, folder: Path) -> None:
    options = fast(web, data_dir=folder / "data")
    crawl = gossamer.crawl(*web.seeds(), **options)
    failed_at = ""

    def fail_at_first() -> None:
        nonlocal failed_at
        for page in crawl:
            failed_at = page.record.url
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_first()
    crawl.stop()
    assert not crawl.result.finished
    assert failed_at in [page.record.url for page in gossamer.crawl(*web.seeds(), **options)]


async def test_an_async_loop_that_is_left_ends_the_crawl(web: FakeWeb, folder: Path) -> None:
    options = fast(web, data_dir=folder / "data")
    seen = []
    async with gossamer.crawl(*web.seeds(), **options) as crawl:
        async for page in crawl:
            if len(seen) == 7:
                break
            seen.append(page.record.url)
    assert not crawl.result.finished
    seen += [page.record.url async for page in gossamer.crawl(*web.seeds(), **options)]
    assert sorted(seen) == sorted(graph(web.site))


async def test_the_next_crawl_in_the_same_directory_waits_for_one_that_was_left(web: FakeWeb, folder: Path) -> None:
    seen = []
    for name in ("data", Path.cwd() / "data", Path("../work/data")):
        async for page in gossamer.crawl(web.seeds()[0], **fast(web, data_dir=name)):
            seen.append(page.record.url)
            break
    assert len(set(seen)) == 1  # the page that the program had in hand


def test_a_slow_loop_holds_the_crawl_back(folder: Path) -> None:
    """However long the program takes for a page, the worker is ahead by a bounded number of pages."""
    with FakeWeb.start(WebSpec(hosts=4, pages=300)) as web:
        for read, _ in enumerate(gossamer.crawl(*web.seeds(), **fast(web))):
            if read < 100:
                continue
            requests = 0
            while (now := len(web.log())) > requests:  # until the crawl makes no more requests
                requests = now
                time.sleep(1)
            assert read < requests < read + 250
            break


def test_outputs_get_what_the_loop_got(web: FakeWeb, folder: Path) -> None:
    options = fast(web, output="pages.jsonl")
    seen = []
    for page in gossamer.crawl(*web.seeds(), **options):
        if len(seen) == 30:
            break
        seen.append(page.record.url)
    assert [record.url for record in records_of(Path("pages.jsonl"))] == seen
    seen += [page.record.url for page in gossamer.crawl(*web.seeds(), **options)]
    assert [record.url for record in records_of(Path("pages.jsonl"))] == seen
    assert sorted(seen) == sorted(graph(web.site))
    with pytest.raises(AlreadyFinished, match="fresh=True"):
        list(gossamer.crawl(*web.seeds(), **options))
    assert len(list(gossamer.crawl(*web.seeds(), **options, fresh=True))) == len(seen)


def test_a_crawl_without_a_loop_writes_its_output(web: FakeWeb) -> None:
    result = gossamer.crawl(*web.seeds(), **fast(web, output=Path("pages.jsonl.gz"), processes=2)).run()
    assert result.finished
    assert result.pages == len(graph(web.site)) == len(records_of(Path("pages.jsonl.gz")))


def test_a_program_without_a_main_guard_may_leave_the_loop_and_end(web: FakeWeb, folder: Path) -> None:
    """It leaves its iterator behind, too: nothing may keep the program from its end, nor stay when it ends."""
    Path("script.py").write_text(
        "import gossamer\n"
        f"pages = iter(gossamer.crawl(*{web.seeds()!r}, **{fast(web)!r}))\n"
        "print(next(pages).status_code)\n"
    )
    done = subprocess.run([python(), "script.py"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "200\n", "")
    assert [path.name for path in Path().iterdir()] == ["script.py"]
    assert not list((folder / "temporary").iterdir())


def test_a_crawl_is_read_once(web: FakeWeb) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web, max_pages=1))
    with pytest.raises(RuntimeError, match="has not ended"):
        _ = crawl.result
    list(crawl)
    with pytest.raises(RuntimeError, match="started before"):
        list(crawl)


class Titles(gossamer.Spider):
    """A spider of this program."""

    def parse(self, page: gossamer.Page) -> Any:
        yield {"title": page.css("title::text").get()}
        yield {"links": len(page.links)}
        for link in page.links:
            yield page.follow(link)


def test_pages_have_what_pages_of_spiders_have(web: FakeWeb) -> None:
    (page,) = gossamer.crawl(web.seeds()[0], **fast(web, depth=0))
    assert page.status_code == 200
    assert page.css("title::text").get() == "Page 0 of site0.test"
    assert page.links[0].url in page.css("a::attr(href)").getall() or page.links.urls


def test_a_class_of_the_program_may_be_the_spider(web: FakeWeb) -> None:
    pages = list(gossamer.crawl(*web.seeds(), **fast(web, spider=Titles)))
    assert sorted(page.record.url for page in pages) == sorted(graph(web.site))
    assert all(page.items == [{"title": page.css("title::text").get()}, {"links": len(page.links)}] for page in pages)


def test_a_crawl_may_be_a_loop_over_its_items(web: FakeWeb) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web, spider=Titles))
    assert len(list(crawl.items())) == 2 * len(graph(web.site)) == crawl.result.items


async def test_a_crawl_may_be_an_async_loop_over_its_items(web: FakeWeb, folder: Path) -> None:
    options = fast(web, spider=Titles, data_dir=folder / "data")
    seen = []
    async for item in gossamer.crawl(*web.seeds(), **options).items():
        if len(seen) == 8:  # all items of four pages
            break
        seen.append(item)
    seen += [item async for item in gossamer.crawl(*web.seeds(), **options).items()]
    assert len(seen) == 2 * len(graph(web.site))


@pytest.mark.parametrize(
    "rules",
    [
        {"field": {"title": "title", "first": "a@href @url"}},
        {"field": ["title=title", "first=a@href @url"]},
        {"extract": {"fields": {"title": "title", "first": "a@href @url"}}},
        {"extract": Path("rules.yaml")},
    ],
)
def test_rules_make_items(web: FakeWeb, rules: dict[str, Any]) -> None:
    Path("rules.yaml").write_text("fields:\n  title: title\n  first: a@href @url\n")
    (page,) = gossamer.crawl(web.seeds()[0], **fast(web, depth=0, **rules))
    link = page.links[0].url
    assert page.items == [{"page_url": page.url, "title": "Page 0 of site0.test", "first": link}]
    assert list(gossamer.crawl(web.seeds()[0], **fast(web, depth=0, **rules)).items()) == page.items


def test_rules_that_find_nothing_are_told(web: FakeWeb, caplog: pytest.LogCaptureFixture) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web, field={"price": ".price", "name": ".name"}, max_pages=3))
    assert list(crawl.items()) == []
    assert crawl.result.notes == ("matched nothing, no value for price, name on any page (3 pages tried)",)
    assert caplog.messages == ["matched nothing, no value for price, name on any page (3 pages tried)"]


def test_settings_of_the_folder_make_no_program_write_files(web: FakeWeb) -> None:
    Path("gossamer.toml").write_text("[crawl]\noutput = 'pages.jsonl'\nreport = 'report.html'\nassets = ['images']\n")
    assert len(list(gossamer.crawl(*web.seeds(), **fast(web, max_pages=2)))) == 2
    assert [path.name for path in Path().iterdir()] == ["gossamer.toml"]


def test_pages_may_have_their_main_content(web: FakeWeb) -> None:
    """Other processes extract it, which need no main guard in the program."""
    Path("script.py").write_text(
        "import gossamer\n"
        f"for page in gossamer.crawl({web.seeds()[0]!r}, depth=0, markdown=True, **{fast(web)!r}):\n"
        "    print(page.content.title)\n"
    )
    done = subprocess.run([python(), "script.py"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "Page 0 of site0.test\n", "")


def test_another_thread_may_stop_the_crawl(web: FakeWeb) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web, rate=1))
    pages = iter(crawl)
    next(pages)
    threading.Thread(target=crawl.stop).start()
    assert len(list(pages)) < 10
    assert not crawl.result.finished


def test_a_crawl_that_is_stopped_at_its_start_has_no_result(web: FakeWeb) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web))
    crawl.stop()  # before: nothing happens
    stopper = threading.Thread(target=_stop_when_started, args=[crawl])
    stopper.start()
    assert list(crawl) == []
    stopper.join()
    with pytest.raises(RuntimeError, match="stopped before it fetched anything"):
        _ = crawl.result


def test_a_crawl_that_is_stopped_before_its_thread_begins_does_not_wait_for_itself(
    web: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = threading.Event()
    factory = background.loop_factory
    monkeypatch.setattr(background, "loop_factory", lambda: factory() if stopped.wait() else None)
    crawl = gossamer.crawl(*web.seeds(), **fast(web))
    stop_reading = crawl._handover.stop

    def stop() -> None:
        stop_reading()
        stopped.set()  # the crawl counts as stopping now, and its thread has done nothing yet

    monkeypatch.setattr(crawl._handover, "stop", stop)
    stopper = threading.Thread(target=_stop_when_started, args=[crawl])
    stopper.start()
    assert list(crawl) == []
    stopper.join()


def test_a_task_that_is_cancelled_before_its_first_step_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks: list[BackgroundTask[None]] = []
    made = threading.Event()

    def loop_that_cancels_first() -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        assert made.wait(10)
        loop.call_soon(tasks[0].cancel)
        return loop

    monkeypatch.setattr(background, "loop_factory", lambda: loop_that_cancels_first)
    tasks.append(BackgroundTask(_wait_for_ever(), name="test"))
    made.set()
    assert tasks[0].wait(10)
    with pytest.raises(asyncio.CancelledError):
        tasks[0].result()


async def _wait_for_ever() -> None:
    await asyncio.Event().wait()


def _stop_when_started(crawl: gossamer.Crawler) -> None:
    while crawl._task is None:
        time.sleep(0.001)
    crawl.stop()


async def test_crawls_may_run_at_once(web: FakeWeb) -> None:
    async def count(**options: Any) -> int:
        return len([page async for page in gossamer.crawl(*web.seeds(), **fast(web, **options))])

    assert await asyncio.gather(count(max_pages=7), count(max_pages=9), count()) == [7, 9, len(graph(web.site))]


async def test_a_timeout_ends_the_crawl(web: FakeWeb) -> None:
    crawl = gossamer.crawl(*web.seeds(), **fast(web, rate=1))

    async def read() -> None:
        async for _ in crawl:
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read(), 3)
    assert not crawl.result.finished


def test_a_crawl_that_is_printed_names_its_url_and_the_way_to_its_pages() -> None:
    crawl = gossamer.crawl("http://a.test/")
    assert str(crawl) == "<gossamer.crawl('http://a.test/'): loop over it for its pages, or call run()>"


# --- what a program gets for mistakes ---------------------------------------------------------------------------------


def test_a_crawl_without_any_page_says_why() -> None:
    with pytest.raises(
        NothingFetched,
        match=r"^No page could be fetched: http://a.test:1/: the server did not accept .*\. Check whether",
    ):
        list(gossamer.crawl("http://a.test:1/", resolve={"a.test": "127.0.0.1"}, ignore_robots=True, retries=0))


def test_a_crawl_in_several_processes_says_why_too() -> None:
    options: dict[str, Any] = {"resolve": {"a.test": "127.0.0.1"}, "ignore_robots": True, "retries": 0}
    with pytest.raises(NothingFetched, match=r"http://a.test:1/: the server did not accept"):
        gossamer.crawl("http://a.test:1/", processes=2, output="pages.jsonl", **options).run()


def test_a_url_that_fails_is_told_once(web: FakeWeb, caplog: pytest.LogCaptureFixture) -> None:
    """In the error if there is no page at all, else in the log."""
    with pytest.raises(NothingFetched, match=r"^No page could be fetched: http://nobody.invalid/: the host name"):
        list(gossamer.crawl("http://nobody.invalid/"))
    assert not caplog.messages
    assert list(gossamer.crawl(*web.seeds(), "http://nobody.invalid/", **fast(web, max_pages=5)))
    assert [line.partition(": ")[0] for line in caplog.messages] == ["Cannot fetch http://nobody.invalid/"]


def test_failures_come_where_they_are_asked_for() -> None:
    options: dict[str, Any] = {"resolve": {"a.test": "127.0.0.1"}, "ignore_robots": True, "retries": 0}
    (page,) = gossamer.crawl("http://a.test:1/", failures=True, **options)
    assert not page.record.success
    assert "did not accept" in page.record.exception


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": "5x"}, "^rate: cannot read '5x'"),
        ({"scope": "page"}, "^scope: cannot use 'page'. Write domain, host, path or any."),
        ({"expires": "soon"}, "^expires: cannot read 'soon'"),
        ({"header": "no colon"}, "^header: cannot read 'no colon'"),
        ({"output": {"pages.jsonl": "some"}}, "^output: cannot use .*records: pages, items or all"),
        ({"spider": "nobody"}, "no spider nobody"),
        ({"field": {"price": {"css": ".price"}}}, "^field: price is {'css': '.price'}. Write a text"),
        ({"field": "title"}, "^field: cannot read 'title'. Write NAME=SELECTOR"),
        ({"field": {"title": "h1["}}, "^field title: "),
        ({"header": {"A": None}}, "^header: A is None. Write a text."),
        ({"seeds": 5}, "^seeds: cannot use 5. Write the path"),
        ({"config": 5}, "^config: cannot use 5. Write the path"),
        ({"crawl_id": 5}, "^crawl_id: cannot use 5. Write a text."),
        ({"fresh": "no"}, "^fresh: cannot use 'no'. Write True or False."),
        ({"csv_guard": True, "output": "a.jsonl"}, 'for example output="items.csv"'),
        ({"field": {"a=b": "h1"}}, "^field: 'a=b' is no name of a field"),
        ({"extract": {"fields": {"title": "h1 @nonsense"}}}, "^extract: .*title"),
        ({"spider": Titles, "processes": 2}, "^processes: only this one has the class that is the spider"),
        ({"spider": object}, "is no spider. Pass a class that is derived from gossamer.Spider"),
        ({"config": "no.toml"}, "^config: there is no file no.toml"),
        ({"resolve": {"a.test": "x"}}, "is not an IP address"),
    ],
)
def test_mistakes_are_named_as_the_program_wrote_them(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        gossamer.crawl("http://127.0.0.1/", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"output": "pages.txt"}, "unknown ending"),
        ({"processes": 2}, "^processes: a loop gets its pages from one process"),
        ({}, "^127.0.0.1 is not on the public internet .* add allow_private=True, "),
    ],
)
def test_mistakes_that_the_start_finds_are_named_in_the_same_way(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        list(gossamer.crawl("http://127.0.0.1/", **options))
    assert len(caught.traceback) < 7  # no calls of the thread in which the crawl runs


def test_items_of_a_crawl_that_has_none_are_an_error_at_once() -> None:
    with pytest.raises(BadInput, match="there is nothing to extract"):
        gossamer.crawl("http://a.test/").items()


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"^crawl\(\) has no option max_page; did you mean max_pages\?$"):
        gossamer.crawl("http://a.test/", max_page=3)  # type: ignore[call-arg]


def test_no_url_is_an_error_at_once() -> None:
    with pytest.raises(BadInput, match="no URL is given"):
        gossamer.crawl()
    with pytest.raises(BadInput, match=r"gossamer.crawl\(\*urls\)"):
        gossamer.crawl(["http://a.test/"])  # type: ignore[arg-type]


def test_a_finished_crawl_says_so(web: FakeWeb) -> None:
    options = fast(web, output="titles.csv", field={"title": "title"})
    assert not gossamer.crawl(*web.seeds(), **options).run().already_finished
    again = gossamer.crawl(*web.seeds(), **options).run()
    assert (again.already_finished, again.pages) == (True, 0)
    assert Path("titles.csv").read_text().count("\n") == 1 + len(graph(web.site))
