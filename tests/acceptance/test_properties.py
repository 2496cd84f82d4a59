"""The example project crawls the estate agent's site in every way its README names, with the figures given there."""

import csv
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gossamer.fakeweb import FakeWeb, WebSpec
from tests.servers.nursery import SCRAPY, Reared
from tests.servers.opensearch import opensearch
from tests.servers.valkey import Server, free_ports, standalone

PROJECT = Path(__file__).parents[2] / "examples" / "properties"
FIELDS = {"title", "price", "description", "address", "image_urls", "url", "project", "spider", "server", "date"}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with standalone() as running:
        yield running


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=1667)) as running:
        yield running


@pytest.fixture(params=["stock", "gossamer"])
def lane(request: pytest.FixtureRequest) -> dict[str, str]:
    """What the environment adds: nothing, or a frontier that nobody has used."""
    if request.param == "stock":
        return {}
    return frontier(request.getfixturevalue("server"), request.node.name)


def frontier(server: Server, name: str) -> dict[str, str]:
    """The environment that turns the shared frontier on, with keys of this test alone."""
    return {"GOSSAMER_FRONTIER": server.address, "GOSSAMER_PREFIX": re.sub(r"\W", "", name)}


def start(folder: Path, web: FakeWeb, lane: dict[str, str], *arguments: str) -> Reared:
    """`scrapy ARGUMENTS` in the project; its log goes to standard error."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GOSSAMER_")}
    environment |= {"ESTATE_URL": f"http://localhost:{web.port}", "PIPELINES_OFF": "all", **lane}
    pythonpath = [environment.get("PYTHONPATH", ""), str(PROJECT.parents[1] / "src")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, pythonpath))
    environment["SCRAPY_SETTINGS_MODULE"] = "properties.settings"
    # To a file: nobody reads a pipe while another process is waited for, and one whose log is stuck works no more.
    descriptor, log = tempfile.mkstemp(dir=folder, suffix=".log")
    os.close(descriptor)
    process = Reared(SCRAPY, arguments, environment=environment, log=Path(log), folder=PROJECT)
    LOGS[process.pid] = Path(log)
    return process


LOGS: dict[int, Path] = {}
"""Where each process writes what it has to say."""


def end(process: Reared) -> str:
    """Its log; its exit code is 0, and it has used nothing that Scrapy has deprecated."""
    log = wait(process)
    assert process.returncode == 0, log[-4000:]
    assert "ScrapyDeprecationWarning" not in log
    return log


def wait(process: Reared) -> str:
    """Its log, when it has ended."""
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"it does not end:\n{LOGS[process.pid].read_text()[-4000:]}") from None
    return LOGS[process.pid].read_text()


def crawl(folder: Path, web: FakeWeb, lane: dict[str, str], spider: str, *arguments: str) -> list[dict[str, Any]]:
    """Its items."""
    feed = folder / "items.jl"
    log = end(start(folder, web, lane, "crawl", spider, "-O", str(feed), *arguments))
    assert re.search("'finish_reason': '(finished|closespider_itemcount)'", log), log[-4000:]
    return lines(feed)


def lines(feed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in feed.read_text().splitlines()]


def asked(web: FakeWeb) -> dict[str, int]:
    """Requests by method."""
    methods = [record.method for record in web.log()]
    return {method: methods.count(method) for method in sorted(set(methods))}


def test_basic_loads_every_field(tmp_path: Path, web: FakeWeb, lane: dict[str, str]) -> None:
    (item,) = crawl(tmp_path, web, lane, "basic")
    assert set(item) == FIELDS
    assert item["title"] == item["title"].title()
    assert isinstance(item["price"], float)
    assert item["image_urls"][0].startswith(f"http://localhost:{web.port}/images/i")
    assert (item["project"], item["spider"]) == ("properties", "basic")
    assert asked(web) == {"GET": 1}


@pytest.mark.parametrize("spider", ["manual", "easy"])
def test_two_directions_stop_at_ninety_items(tmp_path: Path, web: FakeWeb, spider: str) -> None:
    items = crawl(tmp_path, web, {}, spider, "-s", "CLOSESPIDER_ITEMCOUNT=90")
    requests = asked(web)["GET"]
    assert 90 <= len(items) <= 110
    assert len({item["url"] for item in items}) == len(items)
    indexes = sum("/index_" in record.path for record in web.log())
    assert requests == len(items) + indexes
    assert 3 <= indexes <= 6


def test_login_posts_once(tmp_path: Path, web: FakeWeb, lane: dict[str, str]) -> None:
    assert len(crawl(tmp_path, web, lane, "login")) == 3
    assert asked(web) == {"GET": 4, "POST": 1}


def test_nonce_login_fills_the_form_it_was_given(tmp_path: Path, web: FakeWeb, lane: dict[str, str]) -> None:
    assert len(crawl(tmp_path, web, lane, "noncelogin")) == 3
    assert asked(web) == {"GET": 5, "POST": 1}


def test_a_wrong_password_ends_without_items(tmp_path: Path, web: FakeWeb) -> None:
    assert crawl(tmp_path, web, {}, "login", "-a", "password=no") == []
    assert asked(web) == {"GET": 1, "POST": 1}


def test_api_hands_titles_over(tmp_path: Path, web: FakeWeb, lane: dict[str, str]) -> None:
    items = crawl(tmp_path, web, lane, "api")
    assert len(items) == 30
    assert all(item["title"] for item in items)
    assert asked(web) == {"GET": 31}


def test_fast_takes_thirty_items_of_a_page(tmp_path: Path, web: FakeWeb) -> None:
    items = crawl(tmp_path, web, {}, "fast", "-s", "CLOSESPIDER_ITEMCOUNT=90", "-s", "CONCURRENT_REQUESTS=1")
    assert len(items) == 30 * asked(web)["GET"]
    assert len({item["url"] for item in items}) == len(items)
    assert set(items[0]) == FIELDS


def test_fromcsv_has_the_union_of_the_columns(tmp_path: Path, web: FakeWeb, lane: dict[str, str]) -> None:
    todo, feed = tmp_path / "todo.csv", tmp_path / "out.csv"
    todo.write_text((PROJECT / "todo.csv").read_text().replace("localhost:9312", f"localhost:{web.port}"))
    end(start(tmp_path, web, lane, "crawl", "fromcsv", "-a", f"file={todo}", "-O", str(feed)))
    with feed.open(newline="") as rows:
        found = list(csv.DictReader(rows))
    assert {name for row in found for name, value in row.items() if value} == {"name", "price", "heading"}
    assert len(found) == 2


def test_every_feed_format(tmp_path: Path, web: FakeWeb) -> None:
    feeds = [tmp_path / f"items.{kind}" for kind in ("json", "jl", "csv", "xml")]
    end(start(tmp_path, web, {}, "crawl", "login", *[part for feed in feeds for part in ("-O", str(feed))]))
    as_json, as_lines, as_csv, as_xml = feeds
    assert len(json.loads(as_json.read_text())) == 3
    assert len(lines(as_lines)) == 3
    with as_csv.open(newline="") as rows:
        assert len(list(csv.DictReader(rows))) == 3
    assert len(ElementTree.parse(as_xml).getroot()) == 3


def test_images_are_fetched(tmp_path: Path, web: FakeWeb) -> None:
    store = tmp_path / "pictures"
    off = "TidyPipeline,GeocodingPipeline,SiteAddressPipeline,WordsPipeline,ProgramPipeline"
    (item,) = crawl(tmp_path, web, {"IMAGES_STORE": str(store), "PIPELINES_OFF": off}, "basic")
    assert set(item) == {*FIELDS, "images"}
    (image,) = item["images"]
    assert (store / image["path"]).read_bytes().startswith(b"\xff\xd8")


def test_properties_near_a_point_are_found_by_distance(tmp_path: Path) -> None:
    """All pipelines that need no server, OpenSearch, and the search of near.py."""
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=3)) as web, opensearch() as search:
        stores = {"PIPELINES_OFF": "", "ES_PIPELINE_URL": f"{search.url}/properties"}
        feed = tmp_path / "items.jl"
        settings = ("-s", "GEO_PIPELINE_RATE=10/1", "-s", f"GOSSAMER_DATA_DIR={tmp_path}")
        log = end(start(tmp_path, web, stores, "crawl", "fast", "-O", str(feed), *settings))
        items = lines(feed)
        assert len(search.documents("properties")) == len(items) == 90
        printed = near(stores, "angel", "51.5", "-0.1", "--size", "100").stdout
        nothing = near(stores, "castle", "51.5", "-0.1")
        empty = near({"ES_PIPELINE_URL": f"{search.url}/nothing"}, "angel", "51.5", "-0.1")
    assert "'program_pipeline/answers': 90" in log
    assert all(set(item) == {*FIELDS, "location", "ip", "words"} for item in items)
    angels = [item for item in items if "Angel" in item["title"]]
    wanted = sorted((kilometres(item["location"], 51.5, -0.1), item["price"], item["title"]) for item in angels)
    assert len(wanted) > 5
    first, *rows = printed.splitlines()
    assert first.startswith(f"{len(wanted)} properties")
    assert rows == [f"{distance:6.2f} km  £{price:9,.2f}  {title}" for distance, price, title in wanted]
    assert (nothing.stdout, nothing.returncode) == ("No property has 'castle' in its title.\n", 0)
    assert empty.returncode == 1
    assert empty.stderr.startswith(f"{search.url}/nothing answered 404. Has a crawl")
    assert "\n" not in empty.stderr.strip()


def near(environment: dict[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run near.py."""
    command = [sys.executable, str(PROJECT / "near.py"), *arguments]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_a_search_server_that_is_away_is_named_in_one_line() -> None:
    (port,) = free_ports(1)
    away = near({"ES_PIPELINE_URL": f"http://127.0.0.1:{port}/properties"}, "angel", "51.5", "-0.1")
    assert away.returncode == 1
    assert away.stderr.startswith(f"http://127.0.0.1:{port}/properties cannot be reached: ")
    assert "\n" not in away.stderr.strip()


def kilometres(place: dict[str, float], lat: float, lon: float) -> float:
    """The distance on a sphere of the earth's mean radius."""
    from_lat, to_lat = math.radians(lat), math.radians(place["lat"])
    half = math.sin((to_lat - from_lat) / 2) ** 2
    half += math.cos(from_lat) * math.cos(to_lat) * math.sin(math.radians(place["lon"] - lon) / 2) ** 2
    return 2 * 6371.0088 * math.asin(math.sqrt(half))


def test_shards_meet_and_do_not_overlap(tmp_path: Path) -> None:
    """Two jobs, each with a part of the starting points."""
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=7)) as web:
        environment = {**os.environ, "ESTATE_URL": f"http://localhost:{web.port}"}
        command = [sys.executable, "-m", "properties.shards", "--indexes", "7", "--shards", "3"]
        table = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=True).stdout
        header, *starts = table.splitlines()
        assert len(starts) == 3
        jobs = []
        for number, part in enumerate((starts[:2], starts[2:])):
            (tmp_path / f"{number}.csv").write_text("\n".join((header, *part)))
            arguments = ("-a", f"file={tmp_path / f'{number}.csv'}", "-O", str(tmp_path / f"{number}.jl"))
            jobs.append(start(tmp_path, web, {}, "crawl", "sharded", *arguments))
        for job in jobs:
            end(job)
        urls = [item["url"] for number in range(2) for item in lines(tmp_path / f"{number}.jl")]
        assert sorted(urls) == [web.url("localhost", f"/properties/property_{n:06d}.html") for n in range(210)]
        assert asked(web) == {"GET": 217}


def test_a_link_that_was_handed_over_is_treated_as_a_property(tmp_path: Path, web: FakeWeb) -> None:
    url = web.url("localhost", "/properties/property_000007.html")
    (item,) = crawl(tmp_path, web, {}, "distributed", "-s", f"DISTRIBUTED_START_URLS={json.dumps([url])}")
    assert (item["url"], item["spider"]) == (url, "distributed")
    assert asked(web) == {"GET": 1}


def test_the_contracts_hold(tmp_path: Path, web: FakeWeb) -> None:
    assert "OK" in end(start(tmp_path, web, {}, "check"))


def test_a_broken_contract_names_the_field(tmp_path: Path, web: FakeWeb) -> None:
    (tmp_path / "broken.py").write_text(
        "from properties.spiders.basic import BasicSpider\n\n\n"
        "class Broken(BasicSpider):\n"
        '    name = "broken"\n\n'
        "    def parse(self, response):\n"
        '        """@page /properties/property_000000.html\n'
        "        @scrapes title images\n"
        '        """\n'
        "        return super().parse(response)\n"
    )
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    process = start(tmp_path, web, {"PYTHONPATH": path}, "check", "broken", "-s", "SPIDER_MODULES=broken")
    log = wait(process)
    assert process.returncode != 0
    assert "Missing fields: images" in log


@pytest.mark.parametrize("processes", [1, 3])
def test_processes_on_one_frontier_have_each_item_once(tmp_path: Path, server: Server, processes: int) -> None:
    lane = frontier(server, f"together{processes}")
    with FakeWeb.start(WebSpec(hosts=1, pages=1, estate=3)) as web:
        feeds = [tmp_path / f"{number}.jl" for number in range(processes)]
        # One that starts when the others have finished has nothing left to do; else it would begin anew.
        persist = ("-s", "SCHEDULER_PERSIST=True")
        for process in [start(tmp_path, web, lane, "crawl", "easy", *persist, "-O", str(feed)) for feed in feeds]:
            end(process)
        urls = [item["url"] for feed in feeds for item in lines(feed)]
        assert sorted(urls) == [web.url("localhost", f"/properties/property_{number:06d}.html") for number in range(90)]
        assert asked(web) == {"GET": 93}
