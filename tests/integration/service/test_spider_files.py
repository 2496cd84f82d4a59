"""A spider of one file in a service: `gossamer up --spider shop.py`, and a worker with it beside `gossamer serve`."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gossamer.fakeweb import WebSpec, html, serve
from tests.servers.crawling import command, gossamer
from tests.servers.service import Up, talking, up

SHOP = """
from gossamer import Spider

class Shop(Spider):
    def parse(self, page):
        return {"title": page.css("h1::text").get()}
"""


@contextmanager
def up_with_spider(folder: Path) -> Iterator[Up]:
    with up(folder, "--resolve", "*.test:127.0.0.1", "--spider", "shop.py") as service:
        yield service


@contextmanager
def worker_beside(folder: Path) -> Iterator[Up]:
    """Yields when the worker has announced its spider."""
    with up(folder, command="serve") as service:
        flags = ["--bus", "streams", "--resolve", "*.test:127.0.0.1", "--spider", "shop.py"]
        worker = subprocess.Popen(command("worker", *flags), cwd=folder, stderr=subprocess.PIPE, text=True)
        try:
            yield service
        finally:
            worker.send_signal(signal.SIGINT)
            _, said = worker.communicate(timeout=60)
            assert worker.returncode == 0, said


@pytest.mark.parametrize("begin", [up_with_spider, worker_beside])
async def test_a_service_crawls_with_the_spider_of_a_file(tmp_path: Path, begin: object) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    async with serve(WebSpec(hosts=1, pages=1)) as web:
        web.mount("a.test", "/", html("<h1>Lamps</h1>"))
        with begin(tmp_path) as service:  # type: ignore[operator]
            async with talking(service) as talk:
                await talk.say(
                    {"appid": "testapp", "crawlid": "one", "url": f"http://a.test:{web.port}/", "spiderid": "shop"}
                    | {"wait_for_spider": True}
                )
                crawled = await talk.until(
                    talk.topics.crawled, lambda found: {one["type"] for one in found} == {"page", "item"}
                )
    (item,) = [one for one in crawled if one["type"] == "item"]
    assert (item["item"], item["spiderid"]) == ({"title": "Lamps"}, "shop")


def test_a_faulty_file_is_refused_before_the_service_starts(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text("x = (\n")
    done = gossamer("up", "--spider", "shop.py", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gossamer: --spider: shop.py, line 1: SyntaxError: '(' was never closed")
    assert [path.name for path in tmp_path.iterdir()] == ["shop.py"]
