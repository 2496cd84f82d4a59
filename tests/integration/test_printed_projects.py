"""Commands of the how-tos about Scrapy projects run as they are printed. See test_printed_commands.py."""

import json
import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import redis
from scrapy import Request, Spider

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.ftp import ftp_server
from tests.servers.mariadb import mariadb
from tests.servers.printed import Shell, Typed
from tests.servers.printed_pages import check, commands_of, runs, swaps_of, text_of
from tests.servers.valkey import free_ports, wait_until

_RESOLVED = "from scrapy.resolver import dnscache\n\ndnscache['site0.test'] = '127.0.0.1'\n"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=30, page_bytes=2000)) as running:
        yield running


def _project(folder: Path, settings: str, spiders: str) -> None:
    """Write a project as `scrapy startproject` does. `settings`: those of the page."""
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    (folder / "shop").mkdir()
    (folder / "shop/__init__.py").write_text("")
    (folder / "shop/settings.py").write_text(f"BOT_NAME = 'mybot'\nSPIDER_MODULES = ['shop.spiders']\n{settings}")
    (folder / "shop/spiders.py").write_text(_RESOLVED + spiders)


def _code(page: str) -> list[str]:
    """Return the blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", text_of(page), re.DOTALL)


def _together(commands: Iterable[Typed]) -> Iterator[Typed]:
    """Yield the commands, those as one that the page starts in the background one after another."""
    background: list[str] = []
    for typed in commands:
        if typed.command.endswith("&"):
            background.append(typed.command)
            continue
        if background:
            yield Typed("\n".join(background))
        background = []
        yield typed


@runs("howto/scrapy.md")
def test_the_page_about_a_scrapy_project(page: str, tmp_path: Path, web: FakeWeb) -> None:
    frontier, *commands = commands_of(page)
    shell = Shell(tmp_path, swaps_of([frontier]))
    shop = f"""
import asyncio, os
from pathlib import Path
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

class Shop(CrawlSpider):
    name = "shop"
    start_urls = ["{web.seeds()[0]}"]
    rules = (Rule(LinkExtractor(), callback="parse_page", follow=True),)

    async def start(self):  # not before the other process is there, or the crawl has finished and starts again
        Path(f"ready-{{os.getpid()}}").touch()
        while len([*Path().glob("ready-*")]) < 2:
            await asyncio.sleep(0.02)
        async for request in super().start():
            yield request

    def parse_page(self, response):
        yield {{"url": response.url}}
"""
    _project(tmp_path, shell.here(_code(page)[0]), shop)
    with shell.started(frontier.command):
        said = [check(shell, typed) for typed in _together(commands)]
    assert any(text.startswith("mybot/shop: finished, run 1\n") for text in said)
    lines = [(tmp_path / f"shop-{number}.jsonl").read_text().splitlines() for number in (1, 2)]
    urls = [json.loads(line)["url"] for line in (*lines[0], *lines[1])]
    assert len(urls) == len(set(urls)) > 20


@runs("howto/from-scrapy-redis.md")
def test_the_page_about_scrapy_redis(page: str, tmp_path: Path) -> None:
    """A queue that scrapy-redis has filled is imported; the dry run before changes nothing."""
    import scrapy_redis.queue

    [port] = free_ports(1)
    swaps = {"localhost:6379": f"localhost:{port}", "redis-cli": f"redis-cli -p {port}"}
    shell = Shell(tmp_path, swaps)
    with shell.started(f"python -m gossamer.valkey --port {port}"), redis.Redis(port=port) as client:
        old = scrapy_redis.queue.PriorityQueue(client, Spider("dmoz"), "%(spider)s:requests")
        for number in range(3):
            old.push(Request(f"http://site0.test/{number}"))
        said = [check(shell, typed) for typed in commands_of(page)]
        assert client.zcard("dmoz:old") == 3
        [message] = client.lrange("myspider:start_urls", 0, -1)
    assert [words for text in said for words in re.findall("3 added|3 would be added", text)] == [
        "3 would be added",
        "3 added",
    ]
    assert json.loads(message)["meta"] == {"job": 7}


@runs("howto/from-scrapy-cluster.md")
def test_the_page_about_scrapy_cluster(page: str, tmp_path: Path, web: FakeWeb) -> None:
    frontier, api = map(str, free_ports(2))
    swaps = {
        "localhost:6379": f"localhost:{frontier}", "gossamer serve": f"gossamer serve --port {api}",
        "/srv/gossamer": str(tmp_path), "https://example.com": web.seeds()[0],
    }  # fmt: skip
    resolve = {"GOSSAMER_FETCH__RESOLVE": '{"site0.test": "127.0.0.1"}', "GOSSAMER_ALLOW_NETWORKS": '["127.0.0.0/8"]'}
    shell = Shell(tmp_path, swaps, resolve)
    spider, settings, *_ = map(shell.here, _code(page))
    _project(tmp_path, settings, spider)
    with ExitStack() as servers:
        servers.enter_context(shell.started(f"python -m gossamer.valkey --port {frontier}"))
        for typed in commands_of(page):
            if typed.command == "gossamer serve":
                servers.enter_context(shell.started(typed.command))
                servers.enter_context(shell.started("scrapy crawl shop", ready="Spider opened"))
                continue
            if typed.command.startswith("gossamer crawls show"):
                wait_until(lambda show=typed: "finished" in shell.run(show.command).stdout, "the crawl to finish")
            said = check(shell, typed)
    assert json.loads(said)["status_code"] == 200


_OWN_PIPELINES = ("VatPipeline", "StockPipeline", "WordsPipeline", "LanguagePipeline")
_OFFERS = """
import datetime, scrapy

class Offers(scrapy.Spider):
    name = "offers"

    async def start(self):
        on, words = datetime.date(2026, 11, 28), "two words"
        yield {"address": "A street", "price": 100, "description": words, "on": on, "country": "at", "title": "Title"}
"""


class Answers(ThreadingHTTPServer):
    """A service for look-ups that always answers the same. A context manager."""

    def __init__(self, answer: object) -> None:
        body = json.dumps(answer).encode()

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Write nothing."""

        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        super().__exit__(*error)


@runs("howto/pipelines.md")
def test_the_project_of_the_page_about_pipelines(page: str, tmp_path: Path) -> None:
    """The page has no commands but its settings, classes and program, of one project with real servers."""
    settings, vat, stock, words, program, language, feeds = _code(page)
    folder = tmp_path / "project"
    folder.mkdir()
    [port] = free_ports(1)
    found = {"status": "OK", "results": [{"geometry": {"location": {"lat": 51.5, "lng": -0.1}}}]}
    with (
        Answers(found) as geo,
        Answers({"rates": [20]}) as rates,
        ftp_server(tmp_path / "ftp") as ftp,
        mariadb() as database,
    ):
        address = database.new_database()
        swaps = {
            "https://geo.example": geo.url, "localhost:6379": f"localhost:{port}",
            "mysql://me@db.example/shop": address, "ftp://USER:PASSWORD@collector": ftp,
        }  # fmt: skip
        shell = Shell(folder, swaps)
        own = {f"shop.pipelines.{name}": at for at, name in enumerate(_OWN_PIPELINES, 500)}
        more = f"ITEM_PIPELINES |= {own}\nVAT_PIPELINE_URL = '{rates.url}/?of={{key}}'\n"
        more += "LANGUAGE_PIPELINE_COMMAND = 'sed -u s/.*/en/'\n"
        _project(folder, shell.here(settings + feeds) + more, _OFFERS)
        (folder / "shop/pipelines.py").write_text(vat + stock + words + language)
        (folder / "convert_price.py").write_text(program)
        with shell.started(f"python -m gossamer.valkey --port {port}"):
            check(shell, Typed("scrapy crawl offers"))
        rows = database.execute(f"SELECT price, words FROM {address.rpartition('/')[2]}.offers")
    written = [json.loads(path.read_text()) for path in tmp_path.glob("*/items/all_offers_*.jl")]
    assert written == [{
        "address": "A street", "price": 120.0, "description": "two words", "on": "2026-11-28", "country": "at",
        "title": "Title", "location": {"lat": 51.5, "lon": -0.1}, "vat": 20, "number": 1, "words": 2, "language": "en",
    }] * 2  # fmt: skip
    assert rows == ((120.0, 2.0),)
