"""The links of one rule become jobs on other servers: each link once, whatever fails in between."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gossamer.platform_client.batches import BatchSender, BatchServer, LinkStore
from tests.servers import crawling
from tests.servers.ftp import ftp_server
from tests.servers.scrapyd import SERVES_NOTHING, Scrapyd, egg, scrapyd, spider, until

_SPIDERS = """
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

class Estate(CrawlSpider):
    name = "estate"
    rules = (
        Rule(LinkExtractor(allow="index")),
        Rule(LinkExtractor(allow="property"), callback="parse_property"),
    )

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if getattr(self, "web", ""):
            self.start_urls = [self.web + "index_0"]

    def parse_property(self, response):
        yield {"url": response.url, "batch": self.batch}
"""
_INDEXES, _PROPERTIES = 4, 10


class Estate:
    """A web of index pages that list properties, some of them on several pages; it counts what is fetched."""

    def __init__(self) -> None:
        hits = self.hits = Counter[str]()

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hits[self.path] += 1
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                kind, _, number = self.path.strip("/").partition("_")
                if kind == "index":
                    following = int(number) + 1
                    names = [f"property_{int(number) * _PROPERTIES + each}" for each in range(_PROPERTIES + 2)]
                    names += [f"index_{following}"] if following < _INDEXES else []
                    self.wfile.write("".join(f'<a href="/{name}">{name}</a>' for name in names).encode())

            def log_message(self, *given: Any) -> None:
                """Write nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self.properties = {f"/property_{number}" for number in range(_INDEXES * _PROPERTIES + 2)}


@pytest.fixture
def estate() -> Iterator[Estate]:
    made = Estate()
    yield made
    made.server.shutdown()
    made.server.server_close()


def project(folder: Path) -> Path:
    """A project with the add-on."""
    (folder / "shop").mkdir(parents=True)
    (folder / "shop/__init__.py").touch()
    (folder / "shop/settings.py").write_text(
        f"BOT_NAME = 'shop'\nSPIDER_MODULES = ['shop.spiders']\n{SERVES_NOTHING}"
        "ADDONS = {'gossamer.scrapy.DistributedLinks': 0}\nDISTRIBUTED_TARGET_RULE = 1\nDISTRIBUTED_BATCH_SIZE = 21\n"
    )
    (folder / "shop/spiders.py").write_text(_SPIDERS)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = shop.settings\n")
    return folder


def deploy(folder: Path, url: str) -> None:
    done = crawling.gossamer("deploy", url, cwd=folder)
    assert done.returncode == 0, done.stderr


def master(folder: Path, web: str, hosts: list[str], *more: str) -> subprocess.Popen[bytes]:
    """The first job, run by hand."""
    command = [sys.executable, "-m", "scrapy", "crawl", "estate", "-a", f"web={web}", *more]
    command += ["-s", f"DISTRIBUTED_TARGET_HOSTS={','.join(hosts)}"]
    environment = {name: value for name, value in os.environ.items() if name != "SCRAPY_PROJECT"}
    with (folder / "master.log").open("ab") as log:
        return subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment)


def test_links_are_fetched_once_by_jobs_on_two_servers_although_the_first_job_is_killed(
    tmp_path: Path, estate: Estate
) -> None:
    folder = project(tmp_path / "project")
    for name in ("one", "two", "out"):
        (tmp_path / name).mkdir()
    feed = f"file://{tmp_path}/out/%(batch)s.jl"
    with scrapyd(tmp_path / "one") as one, scrapyd(tmp_path / "two") as two:
        hosts = [f"127.0.0.1:{one.port}", f"http://127.0.0.1:{two.port}/"]
        for server in (one, two):
            deploy(folder, f"http://127.0.0.1:{server.port}")
        one.kill()
        two.kill()
        options = ("-s", f"DISTRIBUTED_TARGET_FEED_URL={feed}", "-s", "JOBDIR=job")
        killed = master(folder, estate.url, hosts, *options)

        def links() -> int:
            with contextlib.closing(sqlite3.connect(folder / "job/distributed.db")) as store:
                return int(store.execute("SELECT count(*) FROM link").fetchone()[0])

        until(lambda: estate.hits["/index_3"] == 1 and links() == len(estate.properties))
        killed.kill()
        killed.wait()
        one.start()
        two.start()
        running = master(folder, estate.url, hosts, *options)
        assert running.wait(60) == 0, (folder / "master.log").read_text()
        seen: set[str] = set()

        def all_fetched() -> bool:
            for path in (tmp_path / "out").glob("*.jl"):
                # A file is complete as soon as it has its name.
                lines = path.read_text().splitlines()
                seen.update(json.loads(line)["url"].removeprefix(estate.url[:-1]) for line in lines)
            return seen == estate.properties

        until(all_fetched, what=lambda: str(estate.properties - seen))
        for server in (one, two):
            until(lambda: not server.jobs()["running"] and not server.jobs()["pending"])  # noqa: B023
        jobs = [*one.jobs()["finished"], *two.jobs()["finished"]]
        assert one.jobs()["finished"]
        assert two.jobs()["finished"]
        assert {job["state"] for job in jobs} == {"finished"}
        assert sorted(job["id"] for job in jobs) == sorted(path.stem for path in (tmp_path / "out").iterdir())
    assert all(estate.hits[path] == 1 for path in estate.properties)
    assert b"'distributed/batches': 2" in (folder / "master.log").read_bytes()


def test_a_crawl_whose_links_no_server_accepts_has_failed(tmp_path: Path, estate: Estate) -> None:
    folder = project(tmp_path / "project")
    master(folder, estate.url, ["127.0.0.1:1"], "-s", "DISTRIBUTED_GIVE_UP=0").wait(60)
    said = (folder / "master.log").read_text()
    assert "Spider closed (distributed_undelivered)" in said
    assert "42 links were not handed over" in said


class Counts(Counter[str]):
    """Scrapy's counters, as far as a sender needs them."""

    def inc_value(self, name: str) -> None:
        self[name] += 1


@contextlib.contextmanager
def sending(store: LinkStore, server: Scrapyd, **settings: str) -> Iterator[Counts]:
    counts = Counts()
    sender = BatchSender(store, [BatchServer(f"127.0.0.1:{server.port}", "shop")], "houses", settings, counts)
    sender.start()
    yield counts
    sender.ending.set()
    sender.join()


def test_a_batch_that_is_refused_for_good_is_set_aside_until_the_next_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server lacks the project at first."""

    def add(number: int) -> None:
        store.add([(None, f"http://a.test/{number}")])
        store.make_batches(1, everything=True)

    aside = tmp_path / "distributed-refused.jl"
    store = LinkStore(tmp_path)
    with scrapyd(tmp_path) as server:
        with sending(store, server) as counts:
            add(1)
            until(store.count_aside)
            server.deploy(egg(spider("houses")))
            add(2)
            until(lambda: not store.count_left())
        refused = json.loads(aside.read_text())
        assert refused["links"] == ["http://a.test/1"]
        assert "project 'shop' not found" in refused["reasons"][f"http://127.0.0.1:{server.port}"]
        assert [record.levelname for record in caplog.records if refused["batch"] in record.message] == [
            "WARNING",
            "ERROR",
        ]
        assert (counts["distributed/refused"], counts["distributed/batches"], store.count_aside()) == (1, 1, 1)
        store.close()

        store = LinkStore(tmp_path)
        assert not aside.exists()
        with sending(store, server):
            until(lambda: not store.count_left())
        store.close()
        assert server.ended(refused["batch"])["state"] == "finished"

        # The answer to the call was lost, and the next run has another feed: the server answers 409.
        with contextlib.closing(sqlite3.connect(tmp_path / "distributed.db")) as file, file:
            file.execute("UPDATE batch SET is_done = 0")
        store = LinkStore(tmp_path)
        with sending(store, server, DISTRIBUTED_TARGET_FEED_URL="ftp://elsewhere/") as counts:
            until(lambda: not store.count_left())
        assert (counts["distributed/batches"], store.count_aside()) == (2, 0)
        store.close()
        until(lambda: len(server.jobs()["finished"]) == 2)


def test_a_batch_is_never_longer_than_a_command_line_may_be() -> None:
    store = LinkStore(None)
    long = [(str(number).encode(), f"http://a.test/{number}/{'x' * 1000}") for number in range(150)]
    assert store.add(long) == 150
    assert store.add(long[:5]) == 0
    store.make_batches(1000, everything=True)
    batches = [store.load(batch).links for batch in store.waiting()]
    assert [url for batch in batches for url in batch] == [url for _, url in long]
    assert max(len(json.dumps(batch)) for batch in batches) <= 64_000


@pytest.fixture
def ftp(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and folder of an FTP server."""
    with ftp_server(tmp_path / "ftp") as address:
        yield address, tmp_path / "ftp"


def test_the_job_of_a_batch_stores_whole_files_by_ftp(tmp_path: Path, estate: Estate, ftp: tuple[str, Path]) -> None:
    """Run by hand, as one tries single pages."""
    folder = project(tmp_path / "project")
    address, stored = ftp
    urls = json.dumps([f"{estate.url}property_1", f"{estate.url}property_2"])
    options = ("-s", f"DISTRIBUTED_START_URLS={urls}", "-s", f"DISTRIBUTED_TARGET_FEED_URL={address}/a/%(batch)s.jl")
    (stored / "a").mkdir()
    (stored / "a/b1.jl").write_text("of an earlier attempt")
    assert master(folder, estate.url, [], "-a", "batch=b1", *options).wait(60) == 0
    items = [json.loads(line) for line in (stored / "a/b1.jl").read_text().splitlines()]
    assert sorted(item["url"] for item in items) == json.loads(urls)
    assert [path.name for path in (stored / "a").iterdir()] == ["b1.jl"]
    assert "/index_0" not in estate.hits
