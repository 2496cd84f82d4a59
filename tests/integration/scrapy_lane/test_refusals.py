"""What cannot work is refused at the start, by the setting's name; a look at one page is never part of a crawl."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.fakeweb import FakeWeb
from gossamer.model.crawl import CrawlId
from tests.servers.scraping import ROOT, SPIDERS, Scraper
from tests.servers.valkey import Server

from .lane import HOST, asking, at, page, prefix, scraper


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"GOSSAMER_FRONTIER": ""}, "GOSSAMER_FRONTIER is not set"),
        ({"GOSSAMER_FRONTIER": "localhost:6379"}, "no scheme, such as redis://"),
        ({"GOSSAMER_FRONTIER": "redis://127.0.0.1:1"}, "or name another one with GOSSAMER_FRONTIER."),
        ({"GOSSAMER_FRONTEIR": "x"}, "GOSSAMER_FRONTEIR: there is no such setting; did you mean GOSSAMER_FRONTIER?"),
        ({"GOSSAMER_CRAWL__DEPTH": "3"}, "GOSSAMER_CRAWL__DEPTH has no effect in a Scrapy project"),
        ({"GOSSAMER_WORKER__HEARTBEAT": "soon"}, "GOSSAMER_WORKER__HEARTBEAT: "),
        ({"GOSSAMER_QUEUE_ORDER": "random"}, "GOSSAMER_QUEUE_ORDER: 'random' is neither lifo nor fifo"),
        ({"GOSSAMER_STAY_OPEN": "perhaps"}, "GOSSAMER_STAY_OPEN: 'perhaps' is neither True nor False"),
        ({"DUPEFILTER_CLASS": "tests.integration.scrapy_lane.spiders.HostOnly"}, "HostOnly would never be called"),
        ({"DOWNLOAD_DELAY": "-1"}, "DOWNLOAD_DELAY: '-1' is not a number from 0 up"),
        ({"CONCURRENT_REQUESTS_PER_DOMAIN": "0"}, "CONCURRENT_REQUESTS_PER_DOMAIN, or the spider's"),
        ({"GOSSAMER_FETCH__REFUSAL_RULES": "/none.yaml"}, "GOSSAMER_FETCH__REFUSAL_RULES: cannot read /none.yaml"),
        ({"GOSSAMER_MAX_PAGES": "-1"}, "GOSSAMER_MAX_PAGES: '-1' is not a number of pages"),
    ],
)
async def test_a_wrong_setting_is_refused_by_name(
    tmp_path: Path, server: Server, settings: dict[str, str], complaint: str
) -> None:
    with scraper(tmp_path, server, "links", ["http://127.0.0.1:9/"], **settings) as running:
        done = running.finish()
    assert complaint in done.log
    assert not done.items
    assert done.exit_code == 1


async def test_a_callback_that_is_gone_fails_its_request(tmp_path: Path, server: Server, web: FakeWeb) -> None:
    web.mount(HOST, "/start", page("/old", "/new"))
    for path in ("/old", "/new"):
        web.mount(HOST, path, page())
    before = SPIDERS.read_text()
    yesterday = tmp_path / "yesterday.py"
    yesterday.write_text(
        before
        + CHANGED.format(body="yield response.follow('/old', self.old)\n        os.kill(os.getpid(), 2)", method="old")
    )
    today = tmp_path / "today.py"
    today.write_text(before + CHANGED.format(body="yield response.follow('/new', self.new)", method="new"))
    settings = {"GOSSAMER_PREFIX": prefix(tmp_path), "CONCURRENT_REQUESTS": "1"}
    for name, file in (("one", yesterday), ("two", today)):
        with Scraper(
            tmp_path, "changing", frontier=server.address, name=name, settings=settings,
            arguments={"seeds": at(web, "/start")}, file=file,
        ) as running:  # fmt: skip
            done = running.finish()
    assert "has no method old" in done.log
    async with asking(tmp_path, server) as frontier:
        info = await frontier.crawl_info(CrawlId("scrapybot", "changing"))
    assert info is not None
    assert info.total().failed == {"no_callback": 1}


CHANGED = """

class Changing(LocalSpider):
    name = "changing"

    def parse(self, response):
        {body}

    def {method}(self, response):
        yield {{"url": response.url}}
"""

PROJECT = """
SPIDER_MODULES = ["shop.spiders"]
NEWSPIDER_MODULE = "shop.spiders"
SCHEDULER = "gossamer.scrapy.Scheduler"
GOSSAMER_FRONTIER = "{address}"
GOSSAMER_PREFIX = "{prefix}"
REMOTE_CONTROL_ENABLED = False
TELNETCONSOLE_ENABLED = False
"""

SPIDER = '''
import scrapy


class Shop(scrapy.Spider):
    name = "shop"
    start_urls = ["{url}"]

    def parse(self, response):
        """A page of the shop.

        @url {url}
        @returns items 1 1
        """
        yield {{"url": response.url}}
'''


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["shell", "URL", "-c", "response.status"], "200"),
        (["fetch", "--nolog", "URL"], "<html>"),
        (["parse", "--nolog", "--spider", "shop", "-c", "parse", "URL"], "'url'"),
        (["check"], "OK"),
    ],
)
async def test_a_look_at_one_page_never_touches_the_crawl(
    tmp_path: Path, server: Server, web: FakeWeb, command: list[str], shown: str
) -> None:
    url = f"http://127.0.0.1:{web.port}/start"
    web.mount("127.0.0.1", "/start", page("/leaf"))
    spiders = tmp_path / "shop" / "spiders"
    spiders.mkdir(parents=True)
    (tmp_path / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (tmp_path / "shop" / "__init__.py").touch()
    (spiders / "__init__.py").touch()
    (spiders / "shop.py").write_text(SPIDER.format(url=url))
    (tmp_path / "shop" / "settings.py").write_text(PROJECT.format(address=server.address, prefix=prefix(tmp_path)))
    done = subprocess.run(  # noqa: ASYNC221
        [sys.executable, "-m", "scrapy", *(url if part == "URL" else part for part in command)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert shown in done.stdout + done.stderr
    assert done.returncode == 0
    async with asking(tmp_path, server) as frontier:
        assert await frontier.crawl_info(CrawlId("scrapybot", "shop")) is None
    assert [record.path for record in web.log()].count("/start") == 1
