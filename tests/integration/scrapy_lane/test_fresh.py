"""Incremental runs: an ordinary spider, run again, gives the items of changed pages only, and asks for pages
conditionally."""

import gzip
import hashlib
import json
import random
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.servers.program import until
from tests.servers.scraping import Scraped, Scraper, together
from tests.servers.valkey import Server

from .lane import prefix


class Shop:
    """A small site. Pages have an ETag, except those in `without_tags`."""

    def __init__(self) -> None:
        shop = self
        self.pages: dict[str, str] = {}
        self.without_tags: set[str] = set()
        self.redirects: dict[str, str] = {}
        self.log: list[tuple[str, int, str]] = []
        """Path, status and If-None-Match of each request."""
        self.busy: set[str] = set()
        """Paths that answer once that they are busy."""
        self.footers = False
        """True: no two answers have the same footer."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                body = shop.pages.get(self.path, "").encode()
                if self.path in shop.busy:
                    shop.busy.discard(self.path)
                    body = b"<h1 class=busy>busy</h1>"
                if body and shop.footers:
                    body += f"<footer>{len(shop.log)}</footer>".encode()
                tag = f'W/"{hashlib.sha1(body).hexdigest()[:8]}"'
                condition = self.headers.get("If-None-Match", "")
                status = 200 if body else 404
                if self.path in shop.redirects:
                    status, body = 302, b""
                elif condition == tag:
                    status, body = 304, b""
                if body:
                    body = gzip.compress(body, mtime=len(shop.log))  # no two answers have the same bytes
                shop.log.append((self.path, status, condition))
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                if status == 302:
                    self.send_header("Location", shop.redirects[self.path])
                if self.path not in shop.without_tags and status in (200, 304):
                    self.send_header("ETag", tag)
                if status != 304:
                    self.send_header("Content-Length", str(len(body)))
                if body:
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def products(self, *names: str) -> None:
        """Set the list of products."""
        self.pages["/"] = "<h1>list</h1>" + "".join(f'<a href="/{name}">{name}</a>' for name in names)
        for name in names:
            self.pages.setdefault(f"/{name}", f"<h1>{name}</h1>")

    def asked(self) -> dict[str, tuple[int, bool]]:
        """Return status and whether it was asked conditionally, by path. They are forgotten."""
        found = {path: (status, bool(condition)) for path, status, condition in self.log if path != "/robots.txt"}
        self.log.clear()
        return found


@pytest.fixture
def shop() -> Iterator[Shop]:
    site = Shop()
    thread = threading.Thread(target=site.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def scraper(
    folder: Path,
    server: Server,
    shop: Shop,
    name: str,
    *,
    spider: str = "products",
    version: str = "",
    **settings: Any,
) -> Scraper:
    given = {
        "GOSSAMER_FRESH": "True",
        "GOSSAMER_DATA_DIR": str(folder / "data"),
        "GOSSAMER_PREFIX": prefix(folder),
        "GOSSAMER_WORKER__HEARTBEAT": "1",
        "GOSSAMER_ALLOW_NETWORKS": "127.0.0.0/8",
        "DOWNLOAD_DELAY": "0",
    }
    arguments = {"seeds": f"{shop.url}/", "version": version}
    return Scraper(folder, spider, frontier=server.address, name=name, settings=given | settings, arguments=arguments)


def crawl(folder: Path, server: Server, shop: Shop, name: str, **settings: Any) -> Scraped:
    with scraper(folder, server, shop, name, **settings) as running:
        done = running.finish()
    assert done.exit_code == 0, done.log
    return done


def titles(done: Scraped) -> list[str]:
    return sorted(str(item["title"]) for item in done.items)


ADDON = {"ADDONS": json.dumps({"gossamer.scrapy.Addon": 0})}


def test_the_next_run_gives_the_items_of_changed_and_new_pages(tmp_path: Path, server: Server, shop: Shop) -> None:
    shop.products("a", "b", "c", "d")
    shop.without_tags = {"/c"}
    first = crawl(tmp_path, server, shop, "first")
    assert titles(first) == ["a", "b", "c", "d", "list"]
    assert not any(conditional for _, conditional in shop.asked().values())

    again = crawl(tmp_path, server, shop, "again")
    assert titles(again) == []
    assert shop.asked() == {
        "/": (304, True), "/a": (304, True), "/b": (304, True), "/c": (200, False), "/d": (304, True),
    }  # fmt: skip
    assert again.stats["gossamer/fresh/unchanged"] == 5
    assert again.stats["gossamer/fresh/not_modified"] == 4

    shop.pages["/b"] = "<h1>b is cheaper</h1>"
    changed = crawl(tmp_path, server, shop, "changed")
    assert titles(changed) == ["b is cheaper"], "found by the list, although that has not changed"

    shop.products("a", "b", "e")
    shop.redirects["/a"] = "/x"
    shop.pages["/x"] = "<h1>x</h1>"
    shop.asked()
    shop.busy = {"/b"}
    found = crawl(tmp_path, server, shop, "found")
    assert titles(found) == ["e", "list", "x"], "/b asks for itself again, and is as it was"
    assert found.stats["gossamer/fresh/new"] == 2
    asked = shop.asked()
    assert asked["/a"] == (302, True)
    assert asked["/x"] == (200, False), "the page behind a redirect is another one"


def test_a_page_whose_item_failed_or_whose_callback_gets_other_arguments_gives_its_items_again(
    tmp_path: Path, server: Server, shop: Shop
) -> None:
    shop.products("a", "poison")
    pipeline = {"ITEM_PIPELINES": json.dumps({"tests.integration.scrapy_lane.spiders.PoisonedPipeline": 1})}
    assert titles(crawl(tmp_path, server, shop, "1", POISON="fails", **pipeline)) == ["a", "list"]
    assert titles(crawl(tmp_path, server, shop, "2")) == ["poison"]
    assert titles(crawl(tmp_path, server, shop, "3", version=" 2")) == ["a 2", "poison 2"]
    assert titles(crawl(tmp_path, server, shop, "4", version=" 2", GOSSAMER_FRESH="all")) == ["a 2", "list", "poison 2"]
    del shop.pages["/a"]
    assert titles(crawl(tmp_path, server, shop, "5", version=" 2")) == []
    shop.products("a", "poison")
    assert titles(crawl(tmp_path, server, shop, "6", version=" 2")) == ["a 2"], "a page that comes back is new"


def test_a_process_that_dies_between_an_item_and_the_record_of_its_page_loses_nothing(
    tmp_path: Path, server: Server, shop: Shop
) -> None:
    shop.products("a", "b", "c", "d")
    faults = {"EXTENSIONS": json.dumps({"tests.integration.scrapy_lane.fresh_faults.DiesBeforeStoring": 0})}
    level = {"GOSSAMER_FRESH_LEVEL": "items"}
    with scraper(tmp_path, server, shop, "killed", **faults, **level) as running:
        killed = running.finish()
    assert killed.exit_code != 0
    assert killed.items
    rest = crawl(tmp_path, server, shop, "rest", **level)
    assert {*titles(killed), *titles(rest)} == {"a", "b", "c", "d", "list"}
    twice = [item for item in rest.items if item in killed.items]
    assert len(twice) == len(killed.items) + len(rest.items) - 5, "an item that comes again is the same, by its url"
    assert titles(crawl(tmp_path, server, shop, "again", **level)) == []


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills_at_any_moment_lose_no_item_and_tell_each_change_once(
    seed: int, tmp_path: Path, server: Server, shop: Shop
) -> None:
    """A process may give an item again that a killed one has given: the same one. After a clean end, none."""
    chance, names = random.Random(seed), [f"p{number}" for number in range(40)]
    shop.products(*names)
    shop.without_tags = set(chance.sample([f"/{name}" for name in names], 10))

    def run(round: str) -> list[str]:
        """The titles of all items of a run, some of whose processes are killed."""
        found: list[dict[str, Any]] = []
        for part in range(3):  # a page on which three processes die is given up
            with scraper(tmp_path, server, shop, f"{round}-{part}", CONCURRENT_REQUESTS="4") as running:
                if part < 2:
                    at = len(shop.log) + chance.randrange(1, 20)
                    until(lambda at=at: len(shop.log) >= at, "requests")
                    running.kill()
                    found += running.items
                else:
                    done = running.finish()
                    assert done.exit_code == 0, done.log
                    found += done.items
        different = {(item["url"], item["title"]) for item in found}
        assert len({url for url, _ in different}) == len(different), "an item that comes again is the same"
        return sorted(title for _, title in different)

    assert run("first") == sorted(["list", *names])
    changed = chance.sample(names, 12)
    for name in changed:
        shop.pages[f"/{name}"] = f"<h1>{name} is cheaper</h1>"
    assert run("second") == sorted(f"{name} is cheaper" for name in changed)
    assert titles(crawl(tmp_path, server, shop, "third")) == []


def test_pages_in_a_feed_that_a_killed_process_has_not_written_give_their_items_again(
    tmp_path: Path, server: Server, shop: Shop
) -> None:
    shop.products("poison", "a", "b")  # the last link comes first

    def run(name: str, poison: str) -> list[str]:
        feed = tmp_path / f"{name}.json"
        settings = {
            "FEEDS": json.dumps({str(feed): {"format": "json"}}),
            "ITEM_PIPELINES": json.dumps({"tests.integration.scrapy_lane.spiders.PoisonedPipeline": 1}),
            "POISON": poison,
            "CONCURRENT_REQUESTS": "1",
        }
        with scraper(tmp_path, server, shop, name, **settings) as running:
            done = running.finish()
        assert (done.exit_code == 0) == (poison != "kills"), done.log
        return [] if poison == "kills" else [item["title"] for item in json.loads(feed.read_bytes() or b"[]")]

    assert run("killed", "kills") == []
    assert {*run("rest", "none"), *run("again", "none")} == {"a", "b", "list", "poison"}


def test_items_decide_which_pages_have_changed(tmp_path: Path, server: Server, shop: Shop) -> None:
    shop.products("a", "b", "late", "poison")
    shop.footers = True
    pipeline = {"ITEM_PIPELINES": json.dumps({"tests.integration.scrapy_lane.spiders.PoisonedPipeline": 1})}
    level = {"GOSSAMER_FRESH_LEVEL": "items"} | pipeline
    assert titles(crawl(tmp_path, server, shop, "1", POISON="fails", **level)) == ["a", "b", "late", "list"]
    shop.pages["/b"] = "<h1>b is cheaper</h1>"
    shop.products("a", "b", "late", "new", "poison")
    changed = crawl(tmp_path, server, shop, "2", **level)
    assert titles(changed) == ["b is cheaper", "new", "poison"], "the list has another link, and the item that it had"
    assert changed.stats["gossamer/fresh/unchanged"] == changed.stats["gossamer/fresh/items_dropped"] == 3
    shop.pages["/late"] = "<h1></h1>"  # its callback fails
    shop.pages["/a"] += "<p>More.</p>"
    assert titles(crawl(tmp_path, server, shop, "3", **level)) == []


def test_processes_share_the_index_and_pages_whose_links_are_followed_give_no_items_again(
    tmp_path: Path, server: Server, shop: Shop
) -> None:
    names = [f"p/{number:02}" for number in range(20)]
    shop.products(*names)
    shop.pages |= {f"/{name}": f'<h1>{name}</h1><a href="/p/00">first</a>' for name in names}
    shop.footers = True

    def run(round: str) -> list[str]:
        settings = {**ADDON, "GOSSAMER_FRESH_LEVEL": "text", "CONCURRENT_REQUESTS_PER_DOMAIN": "2"}
        running = [scraper(tmp_path, server, shop, f"{round}-{one}", spider="rules", **settings) for one in "ab"]
        done = together(running)
        assert [part.exit_code for part in done] == [0, 0], done[0].log
        assert len(shop.log) == len(shop.asked()) == len(shop.pages), "no page was asked for twice"
        return sorted(item["url"].removeprefix(shop.url) for part in done for item in part.items)

    assert run("first") == [f"/{name}" for name in names]
    shop.pages["/p/07"] += "<p>is cheaper</p>"
    assert run("second") == ["/p/07"], "a footer is no change of the text"
