"""Scrapy processes on one frontier share cookies: one of them logs in, and the pages of all are those of a member."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.scraping import Scraper
from tests.servers.valkey import Server, wait_until

from .lane import prefix

FILE = Path(__file__).with_name("login_spiders.py")
PAGES = 40


@pytest.fixture(scope="module")
def members() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(members=PAGES, latency_ms=20)) as running:
        yield running


def scraper(folder: Path, server: Server, web: FakeWeb, name: str) -> Scraper:
    settings = {
        "ADDONS": json.dumps({"gossamer.scrapy.Addon": 0}),
        "EXTENSIONS": "{}",
        "GOSSAMER_SHARED_COOKIES": "True",
        "GOSSAMER_PREFIX": prefix(folder),
        "GOSSAMER_WORKER__HEARTBEAT": "1",
        "CONCURRENT_REQUESTS_PER_DOMAIN": "2",
        "SCHEDULER_PERSIST": "True",
    }
    base = web.site.base("members.test")
    return Scraper(
        folder, "member", frontier=server.address, name=name, settings=settings, arguments={"base": base}, file=FILE
    )


def test_one_process_logs_in_for_all(
    tmp_path: Path, server: Server, members: FakeWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOSSAMER_SECRET_KEYS", Fernet.generate_key().decode())
    with scraper(tmp_path, server, members, "one") as first:
        wait_until(lambda: len(first.items) >= 5, "the first pages")
        first.interrupt()
        done = [first.finish()]
    with scraper(tmp_path, server, members, "two") as second:
        done.append(second.finish())
    assert all(part.items for part in done), done[1].log
    items = [item for part in done for item in part.items]
    assert {item["member"] for item in items} == {"alice"}
    assert all(item["theme"] for item in items), "cookies that a request brings are shared, too"
    paths = sorted("/" + item["url"].split("/", 3)[3] for item in items)
    assert paths == sorted(["/", *(f"/p/{number}" for number in range(1, PAGES))])
    assert sum(record.method == "POST" for record in members.log()) == 1


def test_without_a_key_the_crawl_ends_with_what_to_do(tmp_path: Path, server: Server, members: FakeWeb) -> None:
    with scraper(tmp_path, server, members, "one") as running:
        done = running.finish()
    assert "GOSSAMER_SHARED_COOKIES needs a key" in done.log
    assert not done.items
