"""The commands that ask see every crawl of a frontier: of the command line, of a service, of a Scrapy project."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.crawl import Crawl, CrawlId, Terms
from tests.servers import crawls
from tests.servers.crawling import command, gossamer, resolving
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server, wait_until

from .lane import asking, prefix, scraper

OF_THE_SERVICE = "http://site9.test/a?b=2&a=1"
ALL = {"cli/mine", "scrapybot/links", "testapp/served"}


class Commands:
    """Commands run in one folder, on one frontier."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.env = {"GOSSAMER_FRONTIER": server.address, "GOSSAMER_PREFIX": prefix(folder)}

    def say(self, *arguments: str) -> str:
        done = gossamer(*arguments, cwd=self.folder, env=self.env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.say(*arguments, "--json"))

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command(*arguments),
            cwd=self.folder,
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def slow_web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=2, pages=40, page_bytes=3000, out_degree=10)) as running:
        yield running


@pytest.fixture
def commands(tmp_path: Path, server: Server) -> Commands:
    return Commands(tmp_path, server)


@pytest.fixture
def crawled(commands: Commands, slow_web: FakeWeb) -> Iterator["subprocess.Popen[str]"]:
    """A crawl of the command line, slowly."""
    seed = slow_web.seeds()[0]
    resolve = resolving(slow_web.resolve_overrides())
    process = commands.begin("crawl", seed, *resolve, "--crawl-id", "mine", "--rate", "1/5")
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def scraped(tmp_path: Path, server: Server, slow_web: FakeWeb) -> Iterator[Scraper]:
    """A crawl of a Scrapy project, slowly."""
    with scraper(tmp_path, server, "links", slow_web.seeds()[1:], DOWNLOAD_DELAY="5") as running:
        yield running


@pytest.fixture
async def served(tmp_path: Path, server: Server) -> AsyncIterator[None]:
    """A crawl of a service whose workers are away."""
    async with asking(tmp_path, server) as frontier:
        await crawls.open_crawl(
            frontier, [OF_THE_SERVICE], Terms(maxdepth=0), crawl=Crawl(id=CrawlId("testapp", "served"))
        )
        yield


@pytest.mark.usefixtures("served")
def test_they_are_listed_explained_and_stopped(
    commands: Commands, slow_web: FakeWeb, crawled: "subprocess.Popen[str]", scraped: Scraper
) -> None:
    def waiting() -> dict[str, int]:
        seen = commands.json("monitor", "--once")["crawls"]
        return {
            f"{one['crawl']['appid']}/{one['crawl']['crawlid']}": sum(
                part["queued"] for part in one["spiders"].values()
            )
            for one in seen
            if one["state"] == "running"
        }

    wait_until(lambda: waiting().keys() == ALL and all(waiting().values()), "all crawls to be shown as running")
    shown = commands.say("crawls", "list")
    assert all(name.removeprefix("cli/") in shown for name in ALL)
    assert shown.count("running") == 3
    for app, name in (("cli", "mine"), ("scrapybot", "links")):
        assert [one["crawl_id"] for one in commands.json("crawls", "list", "--app", app)["crawls"]] == [name]
    queues = commands.json("stats", "queue")["queues"]
    assert queues["queue_link"]["spider_backlog"] > 1, "of the service and of the command line together"
    assert queues["queue_links"]["spider_backlog"] > 0
    wait_until(
        lambda: commands.json("stats", "spider")["spiders"].get("link", {}).get("200"), "an answer to be counted"
    )

    of_cli, of_scrapy = slow_web.seeds()
    resolve = resolving(slow_web.resolve_overrides())
    for asked, name, named in (
        (of_cli, "cli/mine", ()),
        (of_scrapy, "scrapybot/links", ("--app", "scrapybot")),
        (OF_THE_SERVICE, "testapp/served", ()),
        (OF_THE_SERVICE, "testapp/served", ("--crawl-id", "served")),
    ):
        found = commands.json("why", asked, *resolve, *named)
        assert (f"{found['appid']}/{found['crawl_id']}", found["known"]["seen"]) == (name, True)
    assert found["known"]["place"] == "queued"

    assert "Stopped" in commands.say("crawls", "stop", "cli/mine")
    out, _ = crawled.communicate(timeout=60)
    assert "The crawl mine was stopped" in out
    assert "Stopped" in commands.say("crawls", "stop", "scrapybot/links")
    assert scraped.finish().stats["finish_reason"] == "stopped"
    assert waiting().keys() == {"testapp/served"}
