"""Workers with a browser take what is to be rendered, announce themselves, and are forgotten when they are gone."""

import asyncio
import json
import os
import shutil
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

import pytest

from gossamer.fakeweb import Server, WebSpec, html, serve
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Crawl, CrawlId, Rate, Run, Terms
from gossamer.model.record import PageRecord
from gossamer.model.request import Batch
from tests.servers.crawling import command, gossamer, records_of
from tests.servers.valkey import standalone

pytestmark = pytest.mark.skipif(
    not shutil.which("chromium-headless-shell") and not os.environ.get("CI"), reason="there is no browser"
)

WRITTEN = "<body><script>document.body.innerHTML = '<h1>' + 'written' + '</h1>'</script>"
PAGES = range(4)
CRAWL = Crawl(id=CrawlId("app", "lanes"), rate=Rate(100, 1.0))


@asynccontextmanager
async def a_frontier() -> AsyncIterator[tuple[ValkeyFrontier, str]]:
    """A frontier of its own, and its address."""
    with standalone(tcp=True) as server:
        frontier = await ValkeyFrontier.connect(server.address)
        try:
            yield frontier, server.address
        finally:
            await frontier.close()


@asynccontextmanager
async def a_shop() -> AsyncIterator[Server]:
    """A site whose pages scripts build."""
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        for number in PAGES:
            web.mount("shop.test", f"/plain/{number}", html(f"<p>to be written{WRITTEN}"))
            web.mount("shop.test", f"/rendered/{number}", html(WRITTEN))
        yield web


async def submit(
    frontier: ValkeyFrontier, web: Server, *, lanes: dict[str, bool], match: tuple[str, ...] = (), auto: bool = False
) -> Run:
    """Add the pages of these paths, those with True to be rendered. `match`: expressions of others that are to be.
    `auto`: so are those that show nothing without a browser."""
    run, terms = await frontier.open_crawl(CRAWL), Terms(maxdepth=0, render_match=match, render_auto=auto)
    for path, render in lanes.items():
        urls = [f"http://shop.test:{web.port}/{path}/{number}" for number in PAGES]
        marks = [frontier.spiders.fingerprint("link", url) for url in urls]
        await frontier.add(run, terms, [Batch("link", "shop.test", 1, 0, urls, marks, render=render)])
    return run


@asynccontextmanager
async def a_worker(
    folder: Path, address: str, *options: str, browser: str = "", settings: Mapping[str, str] = MappingProxyType({})
) -> AsyncIterator[Process]:
    """`gossamer worker`, killed at the end unless it has ended. `browser`: its program; empty: what is installed.
    `settings`: as in the environment, without the prefix."""
    folder.mkdir()  # noqa: ASYNC240 (a test)
    arguments = ("--frontier", address, "--resolve", "*:127.0.0.1", "-o", "pages.jsonl", *options)
    process = await asyncio.create_subprocess_exec(
        *command("worker", *arguments),
        cwd=folder,
        env=os.environ
        | {"GOSSAMER_WORKER__HEARTBEAT": "2", "GOSSAMER_BROWSER__PROGRAM": browser}
        | {f"GOSSAMER_{name}": value for name, value in settings.items()},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it holds."""
    while not await condition():  # noqa: ASYNC110 (other processes do it)
        await asyncio.sleep(0.05)


async def fetched(frontier: ValkeyFrontier, *, count: int) -> None:
    """Wait until so many pages of the crawl are fetched."""

    async def are_fetched() -> bool:
        info = await frontier.crawl_info(CRAWL.id)
        assert info is not None
        assert not info.total().failed, info
        return info.total().fetched == count

    await until(are_fetched)


def pages(folder: Path) -> dict[str, bool]:
    """Whether each page was rendered, by its path."""
    records = records_of(folder / "pages.jsonl")
    return {
        record.url.split("/", 3)[3]: "<h1>written</h1>" in record.body
        for record in records
        if isinstance(record, PageRecord)
    }


def reasons(folder: Path) -> set[tuple[str, str]]:
    """Why pages were rendered, as their records have it."""
    records = records_of(folder / "pages.jsonl")
    return {
        (record.rendering.because, record.render_choice)
        for record in records
        if isinstance(record, PageRecord) and record.rendering is not None
    }


async def test_each_worker_gets_the_lanes_that_it_takes(tmp_path: Path) -> None:
    async with a_frontier() as (frontier, address), a_shop() as web:
        await submit(frontier, web, lanes={"plain": False, "rendered": True})
        async with a_worker(tmp_path / "plain", address) as plain:
            await fetched(frontier, count=len(PAGES))
            assert await frontier.browser_workers() == {}
            async with a_worker(tmp_path / "browser", address, "--render-only") as browser:
                await fetched(frontier, count=2 * len(PAGES))
                assert len((await frontier.browser_workers())["shared"]) == 1
                workers = await frontier.workers()
                assert sorted(worker.browser for worker in workers) == [False, True]
                for process in (plain, browser):
                    process.send_signal(signal.SIGTERM)
                    await process.wait()
        assert await frontier.browser_workers() == {}, "a worker that leaves ends its announcement"
    assert pages(tmp_path / "plain") == {f"plain/{number}": False for number in PAGES}
    assert pages(tmp_path / "browser") == {f"rendered/{number}": True for number in PAGES}


async def test_a_worker_with_a_browser_takes_both_lanes(tmp_path: Path) -> None:
    async with a_frontier() as (frontier, address), a_shop() as web:
        await submit(frontier, web, lanes={"plain": False, "rendered": True})
        async with a_worker(tmp_path / "both", address, "--render") as both:
            await fetched(frontier, count=2 * len(PAGES))
            both.send_signal(signal.SIGTERM)
            await both.wait()
    expected = {f"plain/{number}": False for number in PAGES} | {f"rendered/{number}": True for number in PAGES}
    assert pages(tmp_path / "both") == expected


@pytest.mark.parametrize("told_by", ["address", "response"])
async def test_a_worker_without_a_browser_hands_pages_over_that_are_to_be_rendered(
    tmp_path: Path, told_by: str
) -> None:
    """Nobody knew it when they were added. It keeps the others."""
    async with a_frontier() as (frontier, address), a_shop() as web:
        lanes = {"plain": False, "rendered": False}
        if told_by == "response":
            for number in PAGES:
                web.mount("shop.test", f"/plain/{number}", html("<h1>" + "Words that a reader sees. " * 40 + "</h1>"))
        match = ("/rendered/",) if told_by == "address" else ()
        await submit(frontier, web, lanes=lanes, match=match, auto=told_by == "response")
        async with a_worker(tmp_path / "plain", address, browser="no-such") as plain:

            async def are_handed_over() -> bool:
                info = await frontier.crawl_info(CRAWL.id)
                return info is not None and info.rendering.queued == len(PAGES)

            await until(are_handed_over)
            async with a_worker(tmp_path / "browser", address, "--render-only") as browser:
                await fetched(frontier, count=2 * len(PAGES))
                for process in (plain, browser):
                    process.send_signal(signal.SIGTERM)
                    await process.wait()
    assert pages(tmp_path / "plain") == {f"plain/{number}": False for number in PAGES}
    assert pages(tmp_path / "browser") == {f"rendered/{number}": True for number in PAGES}
    if told_by == "address":
        assert reasons(tmp_path / "browser") == {("match", "")}
    else:
        assert reasons(tmp_path / "browser") == {("auto", "rendered:sample"), ("auto", "rendered:change")}


@pytest.mark.parametrize("told_by", ["request", "address", "response"])
async def test_plain_pages_do_not_wait_for_the_browser(tmp_path: Path, told_by: str) -> None:
    """Pages that never end hold the only tab, and more of them wait for it than the worker has slots."""
    async with a_frontier() as (frontier, address), a_shop() as web:
        for number in PAGES:
            web.mount("shop.test", f"/rendered/{number}", html("<script>for (;;);</script>"))
            web.mount("shop.test", f"/plain/{number}", html("<h1>" + "Words that a reader sees. " * 40 + "</h1>"))
        match = ("/rendered/",) if told_by == "address" else ()
        await submit(frontier, web, lanes={"rendered": told_by == "request"}, match=match, auto=told_by == "response")
        async with a_worker(
            tmp_path / "busy", address, "--render", settings={"WORKER__CONCURRENCY": "4", "BROWSER__TABS": "1"}
        ):

            async def are_waiting() -> bool:
                info = await frontier.crawl_info(CRAWL.id)
                return info is not None and info.total().leased >= 2 and info.total().queued <= 2

            await until(are_waiting)
            await submit(frontier, web, lanes={"plain": False})
            await fetched(frontier, count=len(PAGES))


async def test_a_killed_worker_is_forgotten_and_its_requests_wait_for_another_browser(tmp_path: Path) -> None:
    async with a_frontier() as (frontier, address), a_shop() as web:
        for number in PAGES:
            web.mount("shop.test", f"/rendered/{number}", html(WRITTEN + "<script>for (;;);</script>"))
        await submit(frontier, web, lanes={"rendered": True})
        async with a_worker(tmp_path / "killed", address, "--render") as killed:

            async def holds_all() -> bool:
                info = await frontier.crawl_info(CRAWL.id)
                return info is not None and info.rendering.leased == len(PAGES)

            await until(holds_all)
            killed.kill()

        async def is_forgotten() -> bool:
            return not await frontier.browser_workers()

        await until(is_forgotten)
        for number in PAGES:
            web.mount("shop.test", f"/rendered/{number}", html(WRITTEN))
        async with a_worker(tmp_path / "plain", address):

            async def are_back() -> bool:
                info = await frontier.crawl_info(CRAWL.id)
                return info is not None and info.rendering.queued == len(PAGES)

            await until(are_back)
            async with a_worker(tmp_path / "other", address, "--render-only") as other:
                await fetched(frontier, count=len(PAGES))
                other.send_signal(signal.SIGTERM)
                await other.wait()
    assert pages(tmp_path / "other") == {f"rendered/{number}": True for number in PAGES}


async def test_a_command_renders_what_its_spider_asks_for(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        yield {"url": page.url, "heading": page.css("h1::text").get()}
        if page.url.endswith("/"):
            yield page.follow("/plain/1")
            yield page.follow("/rendered/1", render=True)
"""
    )
    async with a_shop() as web:
        web.mount("shop.test", "/", html("<h1>first</h1>"))
        run = await asyncio.to_thread(
            gossamer, "crawl", f"http://shop.test:{web.port}/", "--spider", "shop.py", "--resolve", "*:127.0.0.1",
            "--rate", "100/1", "-o", "items.json", cwd=tmp_path,
        )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found = {
        item["url"].split("/", 3)[3]: item["heading"] for item in json.loads((tmp_path / "items.json").read_text())
    }
    assert found == {"": "first", "plain/1": None, "rendered/1": "written"}


def test_a_worker_without_a_browser_says_so_at_once(tmp_path: Path) -> None:
    run = gossamer(
        "worker", "--frontier", "redis://frontier.invalid:6379", "--render",
        cwd=tmp_path,
        env={"GOSSAMER_BROWSER__PROGRAM": "no-such"},
    )  # fmt: skip
    assert run.returncode == 2
    assert "no program no-such" in run.stderr
