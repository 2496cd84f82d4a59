"""Look-ups at servers that fail in every way: no item is lost, waits are bounded, and the rate holds."""

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gossamer_fakeweb.estate_words import ADDRESSES
from tests.integration.scrapy_lane.test_pipelines import (
    ITEMS,
    WORK,
    Geocoder,
    addresses,
    check_places,
    scraper,
)
from tests.servers.bad_http import Drip, Endless, Reset, Stall, Step, run_bad_server
from tests.servers.program import until
from tests.servers.valkey import Server, standalone


@pytest.fixture
def geocoder() -> Iterator[Geocoder]:
    with closing(Geocoder()) as started:
        yield started


GOOD = json.dumps({"value": 7}).encode()


def answer(body: bytes = GOOD, status: str = "200 OK", headers: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


ENDLESS = b"HTTP/1.1 302 Found\r\nLocation: /good\r\nTransfer-Encoding: chunked\r\n\r\n"
SERVERS: Mapping[str, list[Step]] = {
    "good": [answer()],
    "packed": [answer(gzip.compress(GOOD), headers="Content-Encoding: gzip\r\n")],
    "hop": [answer(b"", "302 Found", "Location: /good\r\n")],
    "endless-hop": [ENDLESS, Endless(b"10000\r\n" + bytes(65536) + b"\r\n")],
    "loop": [answer(b"", "302 Found", "Location: /loop\r\n")],
    "elsewhere": [answer(b"", "302 Found", "Location: ftp://h/\r\n")],
    "nowhere": [answer(b"", "302 Found", "Location: http://no-such-host.invalid/\r\n")],
    "hang": [Stall()],
    "half": [answer()[:-3], Stall()],
    "torn": [answer()[:-3]],
    "reset": [Reset()],
    "drip": [Drip(answer(b" " * 500 + GOOD), seconds=0.05)],
    "endless": [b"HTTP/1.1 200 OK\r\n\r\n", Endless(b" " * 65536)],
    "bomb": [answer(gzip.compress(bytes(50_000_000)), headers="Content-Encoding: gzip\r\n")],
    "unknown-encoding": [answer(headers="Content-Encoding: zstd\r\n")],
    "no-gzip": [answer(headers="Content-Encoding: gzip\r\n")],
    "no-http": [b"SSH-2.0-server\r\n"],
    "no-json": [answer(b"{nope")],
    "empty": [answer(b"")],
    "other-form": [answer(b"[]")],
    "defect": [answer(b'{"value": 7, "by": 0}')],
    "400": [answer(status="400 Bad Request")],
    "429": [answer(status="429 Too Many Requests")],
    "500": [answer(status="500 Oops")],
}
FOUND = {"good", "packed", "hop", "endless-hop"}


async def test_no_server_costs_an_item(tmp_path: Path) -> None:
    items = [{"key": key, "number": number} for key in SERVERS for number in range(2)]
    async with run_bad_server({f"/{key}": steps for key, steps in SERVERS.items()}) as server:
        settings = {f"VALUE_PIPELINE_{name}": value for name, value in {
            "URL": f"http://127.0.0.1:{server.port}/{{key}}", "RATE": "1000/1", "TIMEOUT": "1", "TRIES": "2",
            "CONCURRENCY": "30",
        }.items()}  # fmt: skip
        with scraper(tmp_path, items, f"{WORK}.Values", settings) as running:
            done = await asyncio.to_thread(running.finish, 30)
    got = {(item["key"], item["number"]): item.get("value") for item in done.items}
    assert got == {(key, number): 7 if key in FOUND else None for key in SERVERS for number in range(2)}, done.log
    assert done.stats["value_pipeline/misses"] == len(SERVERS)
    assert done.stats["value_pipeline/failures"] == 2 * (len(SERVERS) - len(FOUND))
    assert done.stats["value_pipeline/hits"] == len(FOUND)
    assert done.stats["test/peak_mb"] < 250


@contextmanager
def moved(geocoder: Geocoder) -> Iterator[str]:
    """Address of a server that redirects each look-up to the geocoder."""

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            geocoder.note(self.path)
            self.send_response(301)
            self.send_header("Location", geocoder.url.replace("/json?sensor=false&address={key}", self.path))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Redirect)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with server:
        yield f"http://127.0.0.1:{server.server_port}/json?sensor=false&address={{key}}"
        server.shutdown()


@pytest.mark.parametrize("cached", [True, False], ids=["shared", "alone"])
def test_redirects_of_look_ups_keep_the_rate(tmp_path: Path, geocoder: Geocoder, server: Server, cached: bool) -> None:
    server.command("FLUSHALL")
    with moved(geocoder) as url:
        settings = {"GEO_PIPELINE_URL": url, "GEO_PIPELINE_RATE": "10/1"}
        if cached:
            settings["REDIS_PIPELINE_URL"] = server.address
        with scraper(tmp_path, addresses(20), "gossamer.scrapy.pipelines.GeocodingPipeline", settings) as running:
            done = running.finish()
    check_places(done.items)
    assert len(done.items) == 20
    assert len(geocoder.looked_up) == 40
    assert geocoder.most_in(1.0) <= 10


def test_a_cache_that_comes_back_is_used_again(tmp_path: Path, geocoder: Geocoder) -> None:
    settings = {"GEO_PIPELINE_URL": geocoder.url, "GEO_PIPELINE_RATE": "4/1"}
    with standalone(tcp=True) as cache:
        settings["REDIS_PIPELINE_URL"] = cache.address
        with scraper(tmp_path, addresses(), "gossamer.scrapy.pipelines.GeocodingPipeline", settings) as running:
            until(lambda: len(geocoder.looked_up) >= 3, "look-ups")
            cache.kill()
            before = len(geocoder.looked_up)
            until(lambda: len(geocoder.looked_up) >= before + 3, "look-ups without the cache")
            cache.start()
            done = running.finish()
        stored = cache.command("KEYS", "geo_pipeline:*")
    check_places(done.items)
    assert len(done.items) == ITEMS
    assert sorted(address for _, address in geocoder.looked_up) == sorted(ADDRESSES)
    assert done.stats["geo_pipeline/misses"] == 35
    assert done.stats["geo_pipeline/cache_errors"] > 0
    assert len(stored) > before
