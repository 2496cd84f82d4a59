"""The end of a job is true: finished only if the spider did what it should."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.scrapyd import Scrapyd, egg, scrapyd, spider, until

_REQUEST = "yield scrapy.Request('data:,x', self.parse)"
_SPIDERS = "".join(
    [
        spider("good"),
        spider("raises", "raise RuntimeError('broken')"),
        spider("callback", _REQUEST, "    def parse(self, response):\n        raise RuntimeError('broken')"),
        spider("closes", "raise scrapy.exceptions.CloseSpider('enough')"),
        spider(
            "closesincallback",
            _REQUEST,
            "    def parse(self, response):\n        raise scrapy.exceptions.CloseSpider('enough')",
        ),
        spider("terminated", "os.kill(os.getpid(), signal.SIGTERM)\nawait asyncio.sleep(600)"),
        spider(
            "twice",
            "os.kill(os.getpid(), signal.SIGTERM)\nawait asyncio.sleep(1)\nos.kill(os.getpid(), signal.SIGTERM)\n"
            "await asyncio.sleep(600)",
        ),
        spider(
            "early",
            "await asyncio.sleep(600)",
            "    def __init__(self, **named):\n        os.kill(os.getpid(), signal.SIGTERM)",
        ),
        spider(
            "opening",
            "await asyncio.sleep(600)",
            "    @classmethod\n    def from_crawler(cls, crawler, **named):\n"
            "        def stop(): os.kill(os.getpid(), signal.SIGINT)\n"
            "        crawler.signals.connect(stop, signal=scrapy.signals.spider_opened, weak=False)\n"
            "        return super().from_crawler(crawler, **named)",
        ),
        spider("killed", "os.kill(os.getpid(), signal.SIGKILL)"),
        spider("exits", "os._exit(7)"),
        spider("unwritable", "yield {'a': object()}"),
        spider("aborts", "os.abort()"),
        spider(
            "construction",
            body="    @classmethod\n    def from_crawler(cls, crawler, **named):\n        raise RuntimeError('broken')",
        ),
        spider("pipeline", body="    custom_settings = {'ITEM_PIPELINES': {'shop.spiders.Broken': 1}}"),
        spider(
            "limited",
            _REQUEST,
            "    custom_settings = {'CLOSESPIDER_ITEMCOUNT': 1}\n"
            "    def parse(self, response):\n        yield {'a': 1}",
        ),
        # There only while spiders are listed.
        "if 'list' in sys.argv:" + spider("vanished").replace("\n", "\n    "),
        "\n",
        spider("toobig", "bytearray(1 << 60)"),
        """
class Broken:
    def open_spider(self, spider=None):
        raise RuntimeError('broken')
    def process_item(self, item, spider=None):
        return item
if os.environ.get('SCRAPYD_EGG_VERSION') == 'importing' and 'list' not in sys.argv:
    os.kill(os.getpid(), signal.SIGTERM)
if os.environ.get('SCRAPYD_EGG_VERSION') == 'withoutproject' and 'list' not in sys.argv:
    sys.exit(2)
""",
    ]
)
_ENDS = {
    "good": ("finished", ""),
    "raises": ("failed", "finish_reason: start_error"),
    "callback": ("finished", ""),
    "closesincallback": ("failed", "finish_reason: enough"),
    "closes": ("failed", ("finish_reason: enough", "finish_reason: start_error")),
    "terminated": ("failed", "finish_reason: shutdown"),
    "twice": ("failed", ("finish_reason: shutdown", "signal: 15", "exit_code: 143")),
    "early": ("failed", ("no_reason", "signal: 15", "finish_reason: shutdown")),
    "opening": ("failed", ("finish_reason: shutdown", "no_reason")),
    "killed": ("failed", "signal: 9"),
    "exits": ("failed", "exit_code: 7"),
    "unwritable": ("failed", "item_lost: TypeError: Object of type object is not JSON serializable"),
    "aborts": ("failed", "signal: 6"),
    "construction": ("failed", "exit_code: 1"),
    "pipeline": ("failed", "exit_code: 1"),
    "limited": ("finished", ""),
    "vanished": ("failed", "exit_code: 1"),
    "toobig": ("failed", "finish_reason: start_error"),
}
"""State and reason of each job. Several reasons: versions of Scrapy differ."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrapyd]:
    with scrapyd(tmp_path_factory.mktemp("scrapyd"), conf="max_proc = 3") as running:
        assert running.deploy(egg(_SPIDERS))["spiders"] == len(_ENDS)
        for name in _ENDS:
            assert running.post("schedule", project="shop", spider=name, jobid=name)["status"] == "ok"
        yield running


@pytest.mark.parametrize("name", _ENDS)
def test_the_end_of_a_job_is_true(server: Scrapyd, name: str) -> None:
    row = server.ended(name)
    state, reasons = _ENDS[name]
    assert row["state"] == state, server.client.get(row["log_url"]).text
    expected = reasons if isinstance(reasons, tuple) else (reasons,)
    assert row["reason"] in expected, server.client.get(row["log_url"]).text


def test_a_signal_while_the_project_is_imported_is_a_failure(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), version="importing")
    server.post("schedule", project="shop", spider="good", jobid="importing", _version="importing")
    row = server.ended("importing")
    assert (row["state"], row["reason"]) == ("failed", "signal: 15")


def test_a_project_that_cannot_be_loaded_is_a_failure(server: Scrapyd) -> None:
    server.deploy(egg(_SPIDERS), version="withoutproject")
    server.post("schedule", project="shop", spider="good", jobid="withoutproject", _version="withoutproject")
    row = server.ended("withoutproject")
    assert (row["state"], row["reason"]) == ("failed", "exit_code: 2")


def test_a_program_that_prints_in_a_failed_job_is_in_its_log(server: Scrapyd) -> None:
    row = server.ended("construction")
    assert "RuntimeError: broken" in server.client.get(row["log_url"]).text


def test_the_items_of_a_killed_job_are_those_until_then(tmp_path: Path) -> None:
    items = "for number in range(20):\n    yield {'number': number}\nawait asyncio.sleep(600)"
    with scrapyd(tmp_path) as server:
        server.deploy(egg(spider("endless", items)))
        server.post("schedule", project="shop", spider="endless", jobid="one")
        pid = server.running("one")["pid"]
        file = tmp_path / "items/shop/endless/one.jl"
        until(lambda: file.exists() and len(file.read_text().splitlines()) == 20)
        os.kill(pid, signal.SIGKILL)
        assert server.ended("one")["reason"] == "signal: 9"
        assert len(server.client.get("/items/shop/endless/one.jl").text.splitlines()) == 20
