"""Spiders of one file: `gossamer crawl --spider shop.py`, as a new user writes and corrects them."""

import ast
import asyncio
import json
import shlex
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import Server, WebSpec, html, serve
from gossamer.worker.loading import find_spider, make_spider
from tests.servers.crawling import FAST_FLAGS, command, gossamer

TITLES = """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        yield {"title": page.css("h1::text").get()}
        for link in page.links:
            yield page.follow(link)
"""


@pytest.fixture
async def web() -> AsyncIterator[Server]:
    """A shop with three pages."""
    async with serve(WebSpec(hosts=1, pages=1)) as server:
        server.mount("shop.test", "/", html('<h1>Shop</h1><a href="/1">one</a> <a href="/2">two</a>'))
        server.mount("shop.test", "/1", html("<h1>First</h1>"))
        server.mount("shop.test", "/2", html("<h1>Second</h1>"))
        yield server


async def run(web: Server, folder: Path, *flags: str) -> "subprocess.CompletedProcess[str]":
    """Crawl the shop by the command, in this folder."""
    return await asyncio.to_thread(
        gossamer,
        "crawl",
        f"http://shop.test:{web.port}/",
        "--resolve",
        "*:127.0.0.1",
        *FAST_FLAGS,
        *flags,
        cwd=folder,
    )


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "shop.test.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["type"] == kind]


def titles(folder: Path) -> list[str]:
    return sorted(record["item"]["title"] for record in records(folder, "item"))


def until_written(path: Path) -> None:
    """Wait for the first line of a file."""
    while not path.exists() or b"\n" not in path.read_bytes():
        time.sleep(0.01)


def asked(web: Server) -> Sequence[str]:
    return [record.path for record in web.log()]


async def test_a_file_without_packaging_crawls(web: Server, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TITLES)
    done = await run(web, tmp_path, "--spider", "shop.py")
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == ["First", "Second", "Shop"]
    assert {record["spiderid"] for record in records(tmp_path, "item")} == {"shop"}


async def test_several_processes_load_the_file(web: Server, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TITLES)
    done = await run(web, tmp_path, "--spider", "./shop.py", "--processes", "2")
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == ["First", "Second", "Shop"]


@pytest.mark.parametrize(
    ("content", "flag", "message"),
    [
        (None, "shop.py", "shop.py cannot be read: No such file or directory. To write one: gossamer new spider shop"),
        ("x = (\n", "shop.py", "shop.py, line 1: SyntaxError: '(' was never closed\n    x = (\n        ^"),
        ("import nowhere.near\n", "shop.py", "shop.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("x = 1\n", "shop.py", "shop.py defines no spider. Write a class in it, for example:"),
        (
            "\n\nclass Shop:\n    def parse(self, page): ...\n",
            "shop.py",
            "shop.py, line 3: the class Shop is no spider.",
        ),
        (
            TITLES + TITLES.replace("Shop", "Other"),
            "shop.py",
            "has 2 spiders: Shop (line 4), Other (line 12). Name one",
        ),
        (TITLES, "shop.py:Shp", "shop.py has no spider Shp. It has: Shop (line 4). Did you mean shop.py:Shop?"),
        (TITLES, "shop", "there is no spider shop; installed are link, wandering. For the spider in shop.py, write"),
    ],
)
async def test_a_faulty_file_is_refused_before_anything_is_fetched(
    web: Server, tmp_path: Path, content: str | None, flag: str, message: str
) -> None:
    if content is not None:
        (tmp_path / "shop.py").write_text(content)
    done = await run(web, tmp_path, "--spider", flag)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not asked(web)


LIST_AND_GOODS = """
from gossamer import Spider

class List(Spider):
    def parse(self, page):
        for link in page.links:
            yield page.follow(link, spider="goods", attrs={"from": page.url})

class Goods(Spider):
    async def parse(self, page):
        yield {"title": page.css("h1::text").get(), "from": page.attrs["from"]}
"""


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_spider_may_send_links_to_another_of_its_file(web: Server, tmp_path: Path, processes: str) -> None:
    (tmp_path / "shop.py").write_text(LIST_AND_GOODS)
    done = await run(web, tmp_path, "--spider", "shop.py:List", "--processes", processes)
    assert done.returncode == 0, done.stderr
    assert titles(tmp_path) == ["First", "Second"]
    assert {record["item"]["from"] for record in records(tmp_path, "item")} == {f"http://shop.test:{web.port}/"}


async def test_requests_of_a_renamed_spider_are_told_about(web: Server, tmp_path: Path) -> None:
    """The crawl would wait for them without a word."""
    file = tmp_path / "shop.py"
    arguments = command(
        *("crawl", f"http://shop.test:{web.port}/", "--resolve", "*:127.0.0.1", "--spider", "shop.py"),
        *("--crawl-id", "x", "--rate", "1/3600"),
    )
    for content, awaited in (
        (TITLES, None),
        (TITLES.replace("Shop", "Store"), "2 requests of this crawl wait for the spider shop, which this command does"),
    ):
        file.write_text(content)
        process = await asyncio.create_subprocess_exec(*arguments, cwd=tmp_path, stderr=asyncio.subprocess.PIPE)
        assert process.stderr is not None
        if awaited is None:
            await asyncio.to_thread(until_written, tmp_path / "shop.test.jsonl")
        else:
            while awaited not in (line := (await process.stderr.readline()).decode()):
                assert line, "the command ended"
            assert 'write into it: name = "shop"' in line
        process.send_signal(signal.SIGINT)
        await process.communicate()


async def test_a_worker_refuses_a_faulty_file(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(TITLES)
    done = await asyncio.to_thread(
        gossamer, "worker", "--spider", "shop.py:Nope", "--data-dir", str(tmp_path), cwd=tmp_path
    )
    assert done.returncode == 2
    assert "--spider: shop.py has no spider Nope. It has: Shop (line 4)." in done.stderr


async def test_an_error_of_the_spider_shows_its_own_line(web: Server, tmp_path: Path) -> None:
    """In the record, and on the terminal once for all pages that meet it."""
    (tmp_path / "shop.py").write_text(
        TITLES.replace(
            'yield {"title"', 'price = float(page.css(".price::text").get())\n        yield {"title"'
        ).replace("price = float", "if page.depth: price = float")
    )
    done = await run(web, tmp_path, "--spider", "shop.py")
    failed = [record for record in records(tmp_path, "page") if not record["success"]]
    assert {record["url"].rpartition("/")[2] for record in failed} == {"1", "2"}
    for record in failed:
        assert record["reason"] == "spider_error"
        assert record["exception"].startswith("TypeError: float() argument must be")
        assert record["exception"].endswith("(shop.py, line 6, in parse)")
    assert done.stderr.count("shop.py, line 6, in parse\n    if page.depth: price = float(") == 1
    assert "site-packages" not in done.stderr
    assert "gossamer/worker" not in done.stderr


HOSTILE = """
import sys
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        yield {"lost": True}
        yield page.follow("/2")
        if page.depth == 0:
            return
        %s
"""


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("sys.exit('enough')", "SystemExit: enough (shop.py, line 11, in parse)"),
        ("next(iter(()))", "RuntimeError: generator raised StopIteration (shop.py, line 11, in parse)"),
        ("raise MemoryError", "MemoryError (shop.py, line 11, in parse)"),
        (
            "yield 'x'",
            "BadInput: parse yielded a str, 'x'. To follow a link, write: yield page.follow(url) (shop.py, l",
        ),
        ("page.css('[[')", "BadInput: the CSS selector '[[' lacks a closing ] (shop.py, line 11, in parse)"),
        ("def again(): again()\n        again()", "RecursionError: maximum recursion depth exceeded (shop.py, line 11"),
        ("yield page.follow('/1', headers={'Host': 'x'})", "header 'Host' is set by the client"),
        ("yield page.follow('/1', headers={'X': 5})", "the header 'X': 5 is not a text (shop.py, line 11"),
        ("yield page.follow('/1', body='x')", "body is 'x', but must be bytes, such as b'a=1'. (shop.py, line 11"),
        ("yield page.follow('/1', priority='x')", "priority is 'x', but must be a whole number. (shop.py, line 11"),
        ("yield page.follow('/1', attrs=[1])", "attrs is [1], but must be a dictionary. (shop.py, line 11"),
        ("yield page.follow('/1', attrs={'x': sys})", "attrs must be JSON: Encoding objects of type module is uns"),
        ("import asyncio; raise asyncio.CancelledError", "parse ended with CancelledError (shop.py, line 11"),
        ("raise GeneratorExit", "parse ended with GeneratorExit (shop.py, line 11, in parse)"),
    ],
)
async def test_no_error_of_a_spider_ends_the_crawl(web: Server, tmp_path: Path, code: str, exception: str) -> None:
    """The page has a record with the line; its items and links are dropped."""
    (tmp_path / "shop.py").write_text(HOSTILE % code)
    done = await run(web, tmp_path, "--spider", "shop.py")
    assert done.returncode == 0, done.stderr
    (failed,) = [record for record in records(tmp_path, "page") if not record["success"]]
    assert failed["reason"] == "spider_error"
    assert exception in failed["exception"]
    assert "line 11" in failed["exception"]
    assert len(records(tmp_path, "item")) == 1


async def test_a_task_of_the_spider_that_is_cancelled_fails_its_page(web: Server, tmp_path: Path) -> None:
    """The worker must not take it for the end of its own task: the crawl would never end."""
    (tmp_path / "shop.py").write_text(
        "import asyncio\nfrom gossamer import Spider\nclass Shop(Spider):\n    async def parse(self, page):\n"
        "        task = asyncio.ensure_future(asyncio.sleep(9))\n        task.cancel()\n        yield await task\n"
    )
    done = await run(web, tmp_path, "--spider", "shop.py")
    assert done.returncode == 1, done.stderr
    (failed,) = records(tmp_path, "page")
    assert failed["exception"] == "RuntimeError: parse ended with CancelledError (shop.py, line 7, in parse)"


async def test_a_corrected_spider_goes_on_with_its_crawl(web: Server, tmp_path: Path) -> None:
    """The crawl's name depends on the names of file and class, not on the file's contents or its folder."""
    file = tmp_path / "shop.py"
    file.write_text(TITLES)
    first = await run(web, tmp_path, "--spider", "shop.py", "--depth", "0", "--crawl-id", "x", "-o", "x.jsonl")
    assert first.returncode == 0
    names = []
    for content, flag in (
        (TITLES, "shop.py"),
        (TITLES.replace("h1", "h1.title"), str(file)),
        (TITLES + "\nclass _Other(Spider): pass\n", "./shop.py:Shop"),
    ):
        file.write_text(content)
        done = await run(web, tmp_path, "--spider", flag, "--json")
        assert done.returncode == 0, done.stderr
        names.append(json.loads(done.stdout)["crawl_id"])
    assert len(set(names)) == 1
    (tmp_path / "again.py").write_text(TITLES)
    done = await run(web, tmp_path, "--spider", "again.py", "--json", "--append")
    assert json.loads(done.stdout)["crawl_id"] != names[0]


@pytest.mark.parametrize("name", ["my shop", 'a""" \\d', 'it\'s "it"', "商店"])
def test_a_new_spider_of_any_name_loads_and_quotes_its_file_for_a_shell(tmp_path: Path, name: str) -> None:
    written = gossamer("new", "spider", name, cwd=tmp_path)
    assert written.returncode == 0
    file = f"{name}.py"
    assert written.stdout.endswith(f"--spider {shlex.quote(file)}\n")
    docstring = ast.get_docstring(ast.parse((tmp_path / file).read_text())) or ""
    assert f"--spider {shlex.quote(file)} -o " in docstring
    loaded = find_spider(str(tmp_path / file))
    assert make_spider(loaded).parse
