"""`gossamer migrate scrapy-redis`: queues that scrapy-redis itself has filled, and a crawl that goes on with them."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy_redis.dupefilter
import scrapy_redis.queue
from scrapy import Request, Spider

from gossamer.fakeweb import FakeWeb
from gossamer.fakeweb.answer import redirect
from gossamer_fakeweb.log import fetches
from tests.servers.scraping import ROOT
from tests.servers.valkey import Server

from .lane import HOST, at, page, prefix
from .test_from_scrapy_redis import items, moved

QUEUES = {"fifo": "FifoQueue", "lifo": "LifoQueue", "priority": "PriorityQueue"}


class Old(Spider):
    """As the old project had it, as far as its queue knows it."""

    name = "old"

    def note(self, response: Any, **more: Any) -> None: ...


@pytest.fixture
def store(server: Server) -> Iterator[redis.Redis]:
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        client.flushdb()
        yield client


def run(folder: Path, server: Server, *options: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gossamer", "migrate", "scrapy-redis", "--spider", "old"]
    command += ["--redis", server.address, "--bot", prefix(folder), *options]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "GOSSAMER_PREFIX": prefix(folder)}, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    return done


def migrate(folder: Path, server: Server, *options: str, code: int = 0) -> dict[str, Any]:
    done = run(folder, server, "--json", *options, code=code)
    return json.loads(done.stdout) if done.stdout else {"error": done.stderr}


@pytest.mark.parametrize("queue", QUEUES)
def test_what_waits_is_fetched_and_what_was_seen_is_not(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb, queue: str
) -> None:
    web.mount(HOST, "/index", page("/seen", "/new", "/w/1", "/moved"))
    web.mount(HOST, "/moved", redirect("/seen"))
    for path in ("/seen", "/new", *(f"/w/{number}" for number in range(6))):
        web.mount(HOST, path, page())
    spider = Old()
    callback = spider.note
    waiting = [
        Request(at(web, f"/w/{number}"), callback, meta={"depth": 2, "pair": (1, {2})}, cb_kwargs={"number": number})
        for number in range(6)
    ]
    twice = Request(at(web, "/w/0"), callback, cb_kwargs={"number": 100}, dont_filter=True)
    index = Request(at(web, "/index"), spider.note, cb_kwargs={"number": -1})
    old = getattr(scrapy_redis.queue, QUEUES[queue])(store, spider, "%(spider)s:requests")
    seen = scrapy_redis.dupefilter.RFPDupeFilter(store, "old:dupefilter")
    for request in [*waiting, twice, index]:
        old.push(request)
        seen.request_seen(request)
    seen.request_seen(Request(at(web, "/seen")))
    options = ["--lifo"] if queue == "lifo" else []

    dry = migrate(tmp_path, server, "--dry-run", *options)
    assert dry["imported"]["added"] == 8
    assert not store.exists("old:requests:migrated")
    first = migrate(tmp_path, server, *options)
    assert first["imported"] == {"read": 8, "added": 8, "known": 0, "imported_before": 0, "dead": 0, "reasons": {}}
    assert first["left"]["fingerprints"] == 8
    again = migrate(tmp_path, server, *options)
    assert (again["imported"]["added"], again["imported"]["imported_before"]) == (0, 8)

    elsewhere = migrate(tmp_path, server, "--crawl", "another", "--dry-run", *options)
    assert elsewhere["imported"]["added"] == 8

    settings = {"SCHEDULER_QUEUE_CLASS": f"gossamer.scrapy.redis.queue.{QUEUES[queue]}", "CONCURRENT_REQUESTS": "1"}
    with moved(tmp_path, server, "old", **settings) as running:
        done = running.finish()
    assert done.exit_code == 0, done.log
    fetched = list(fetches(web.log()))
    assert sorted(fetched) == sorted([at(web, p) for p in ("/index", "/new", "/moved", *(f"/w/{n}" for n in range(6)))])
    found = items(store, "old:items")
    assert sorted(item["number"] for item in found) == [-1, 0, 1, 2, 3, 4, 5, 100, 1000]
    order = [item["number"] for item in found if 0 <= item["number"] < 100]
    if queue != "priority":
        assert order == (sorted(order) if queue == "fifo" else sorted(order, reverse=True))
    assert {item["pair"] for item in found if 0 <= item["number"] < 100} == {"(1, {2})"}


def test_what_cannot_be_read_is_kept_with_the_reason(tmp_path: Path, server: Server, store: redis.Redis) -> None:
    good = pickle.dumps({"url": "http://a.test/", "method": "GET"})
    bad = [b"garbage", pickle.dumps({"url": "nowhere"}), pickle.dumps(Exception("x")), pickle.dumps([1])]
    store.rpush("old:requests", good, *bad)
    done = migrate(tmp_path, server, code=2)
    assert (done["imported"]["added"], done["imported"]["dead"]) == (1, 4)
    assert len(items(store, "old:requests:dead")) == 4
    reasons = {letter["reason"] for letter in items(store, "old:requests:dead")}
    assert done["imported"]["reasons"] == dict.fromkeys(reasons, 1)
    assert migrate(tmp_path, server)["imported"]["imported_before"] == 5
    assert store.llen("old:requests:dead") == 4


def test_the_first_reasons_are_shown_with_their_counts(tmp_path: Path, server: Server, store: redis.Redis) -> None:
    store.rpush("old:requests", *[pickle.dumps({"url": f"{number}" + "x" * 300}) for number in range(12)])
    store.rpush("old:requests", *[pickle.dumps([number]) for number in range(3)])  # the oldest, on the right
    said = run(tmp_path, server, "--dry-run", code=2).stderr.partition("15 requests cannot be read\n")[2].splitlines()
    assert said[0] == "  3: it is not a request"
    assert [line.partition("xx")[0] for line in said[1:10]] == [f"  1: '{number}" for number in range(11, 2, -1)]
    assert all(line.endswith("x…") and len(line) < 210 for line in said[1:10])
    assert said[10:] == ["  3: other reasons"]


def test_a_server_that_cannot_be_reached_is_named_with_its_option(tmp_path: Path, server: Server) -> None:
    error = migrate(tmp_path, server, "--redis", "redis://127.0.0.1:1", code=4)["error"]
    assert "Check that a Valkey or Redis server runs there, or name another one with --redis." in error


def test_a_key_that_is_not_scrapy_rediss_is_refused(tmp_path: Path, server: Server, store: redis.Redis) -> None:
    store.set("old:requests", "x")
    assert "old:requests is a string" in migrate(tmp_path, server, code=2)["error"]


def test_a_spider_that_has_left_nothing_is_refused_with_those_that_have(
    tmp_path: Path, server: Server, store: redis.Redis
) -> None:
    assert "No other spider has such keys there" in migrate(tmp_path, server, code=2)["error"]
    store.rpush("dmoz:requests", "x")
    store.sadd("bold:dupefilter", "x")
    error = migrate(tmp_path, server, "--dry-run", code=2)["error"]
    assert "nothing is left under the name old: none of old:requests, old:dupefilter, old:start_urls exists" in error
    assert "Spiders with such keys are: bold, dmoz." in error
    store.rpush("all[*]shop", "x")
    assert "are: bold, shop." in migrate(tmp_path, server, "--queue-key", "all[*]%(spider)s", code=2)["error"]
