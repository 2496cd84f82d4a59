"""A project of scrapy-redis with its dotted paths changed: its example spiders, feeding scripts, and no losses."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import scrapy_redis.queue
from scrapy import Request, Spider

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer.model.crawl import CrawlId
from gossamer_fakeweb import expected
from gossamer_fakeweb.expected import fetched
from gossamer_fakeweb.log import fetches, repeated
from tests.servers.scraping import Scraper, together
from tests.servers.valkey import Server, standalone, wait_until

from .lane import HOST, asking, at, page, prefix

SPIDERS = Path(__file__).with_name("redis_spiders.py")
OURS = "gossamer.scrapy.redis."


def moved(folder: Path, server: Server, spider: str, *, name: str = "one", **more: Any) -> Scraper:
    arguments = more.pop("arguments", None)
    settings = {
        "SCHEDULER": OURS + "scheduler.Scheduler",
        "DUPEFILTER_CLASS": OURS + "dupefilter.RFPDupeFilter",
        "SCHEDULER_QUEUE_CLASS": OURS + "queue.PriorityQueue",
        "SCHEDULER_PERSIST": "True",
        "STATS_CLASS": OURS + "stats.RedisStatsCollector",
        "ITEM_PIPELINES": json.dumps(
            {"tests.integration.scrapy_lane.spiders.ExamplePipeline": 300, OURS + "pipelines.RedisPipeline": 400}
        ),
        "REDIS_PARAMS": json.dumps({"unix_socket_path": str(server.socket_path)}),
        "BOT_NAME": prefix(folder),
        "GOSSAMER_PREFIX": prefix(folder),
        "GOSSAMER_WORKER__HEARTBEAT": "1",
    }
    return Scraper(
        folder, spider, frontier=None, name=name, settings=settings | more, arguments=arguments, file=SPIDERS
    )


@pytest.fixture
def store(server: Server) -> Iterator[redis.Redis]:
    """As a feeding script has it. What the processes of a test leave beside the frontier has an end."""
    with redis.Redis(unix_socket_path=str(server.socket_path)) as client:
        client.flushdb()
        yield client
        left = {key: client.pttl(key) for key in client.scan_iter("gossamer:*")}
        assert -1 not in left.values(), f"without an end: {left}"


def items(store: redis.Redis, key: str) -> list[dict[str, Any]]:
    """What `process_items` would read."""
    return [json.loads(row) for row in store.lrange(key, 0, -1)]


def test_the_crawl_spider_in_three_processes(tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb) -> None:
    arguments = {"seeds": ",".join(web.seeds())}
    done = together([moved(tmp_path, server, "dmoz", name=name, arguments=arguments) for name in "abc"])
    assert [part.exit_code for part in done] == [0, 0, 0], done[0].log
    found = items(store, "dmoz:items")
    assert not repeated(web.log())
    assert {item["url"] for item in found} == set(fetches(web.log())) - set(web.seeds())
    assert len(found) == len({item["url"] for item in found})
    assert all(item["spider"] == "marked" for item in found)
    # Each process's own stats, and those of all together.
    merged = store.hgetall("dmoz:stats")
    for name in ("item_scraped_count", "downloader/request_bytes", "scheduler/dequeued/redis"):
        assert int(merged[name.encode()]) == sum(part.stats.get(name, 0) for part in done)
    assert float(merged[b"elapsed_time_seconds"]) > 0
    assert merged[b"start_time"].startswith(b"20")
    assert 0 < store.ttl("dmoz:stats") <= 7 * 86400


def test_the_redis_spider_is_fed_while_it_works(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    for number in range(40):
        web.mount(HOST, f"/f/{number}", page())
    store.lpush("myspider:start_urls", at(web, "/f/0"))
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "3"}) as running:
        wait_until(lambda: len(items(store, "myspider_redis:items")) == 1, "the first page")
        for number in range(1, 40):
            data = {"url": at(web, f"/f/{number}"), "meta": {"job": number}}
            store.rpush("myspider:start_urls", json.dumps(data))
        wait_until(lambda: len(items(store, "myspider_redis:items")) == 40, "all the others")
        done = running.finish()
    assert done.stats["finish_reason"] == "finished"
    assert {item["meta"] for item in items(store, "myspider_redis:items")} == {None, *range(1, 40)}
    assert not store.exists("myspider:start_urls", "myspider:start_urls:processing", "myspider:start_urls:dead")


def test_the_redis_crawl_spider_in_two_processes(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    arguments = {"max_idle_time": "2"}
    with (
        moved(tmp_path, server, "mycrawler_redis", name="a", arguments=arguments) as one,
        moved(tmp_path, server, "mycrawler_redis", name="b", arguments=arguments) as two,
    ):
        store.lpush("mycrawler:start_urls", *web.seeds())
        done = [one.finish(), two.finish()]
    assert set(fetches(web.log())) == fetched(expected(web.site)), done[0].log
    assert len(items(store, "mycrawler_redis:items")) == len(
        {item["url"] for item in items(store, "mycrawler_redis:items")}
    )


@pytest.mark.parametrize("kind", ["set", "zset"])
def test_start_keys_of_other_kinds(tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb, kind: str) -> None:
    urls = [at(web, f"/k/{number}") for number in range(5)]
    for url in urls:
        web.mount(HOST, "/k/" + url.rpartition("/")[2], page())
    if kind == "set":
        store.sadd("myspider:start_urls", *urls)
    else:
        store.zadd("myspider:start_urls", {url: number for number, url in enumerate(urls)})
    setting = {"REDIS_START_URLS_AS_SET" if kind == "set" else "REDIS_START_URLS_AS_ZSET": "True"}
    with moved(
        tmp_path, server, "myspider_redis", arguments={"max_idle_time": "1"}, CONCURRENT_REQUESTS="1", **setting
    ) as running:
        running.finish()
    found = [item["url"] for item in items(store, "myspider_redis:items")]
    assert sorted(found) == urls
    if kind == "zset":
        assert found == urls[::-1]


def test_bad_messages_are_buried_and_their_neighbours_crawled(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    for path in ("/good", "/fine"):
        web.mount(HOST, path, page())
    bad = [
        "123",
        "not a url",
        "{broken",
        '{"foo": 1}',
        json.dumps({"url": at(web, "/x"), "foo": {"a": 1}}),
        b"\xff\xfe",
    ]
    store.rpush("myspider:start_urls", at(web, "/good"), *bad, at(web, "/fine"))
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "1"}) as running:
        done = running.finish()
    assert {item["url"] for item in items(store, "myspider_redis:items")} == {at(web, "/good"), at(web, "/fine")}
    letters = items(store, "myspider:start_urls:dead")
    assert len(letters) == len(bad)
    assert all(letter["reason"] for letter in letters)
    assert letters[0]["message"] == "123"
    assert 0 < store.ttl("myspider:start_urls:dead") <= 7 * 86400
    assert done.stats["gossamer/start_messages/dead"] == len(bad)


def test_a_spiders_own_reading_of_its_messages(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    for number in (1, 10, 2, 20):
        web.mount(HOST, f"/n/{number}", page())
    store.rpush("numbers:start_urls", "1", "one", "2")
    arguments = {"max_idle_time": "1", "base": at(web, "")}
    with moved(tmp_path, server, "numbers", arguments=arguments) as running:
        running.finish()
    assert {item["url"] for item in items(store, "numbers:items")} == {at(web, f"/n/{n}") for n in (1, 10, 2, 20)}
    (letter,) = items(store, "numbers:start_urls:dead")
    assert letter["message"] == "one"
    assert letter["reason"].startswith("ValueError")


def test_a_message_of_a_killed_process_is_read_by_another(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    web.mount(HOST, "/once", page())
    # As a process leaves it that is killed right after it took it; its lease has run out.
    store.zadd("myspider:start_urls:processing", {f"token:1:|{at(web, '/once')}": 1})
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "1"}) as running:
        running.finish()
    assert [item["url"] for item in items(store, "myspider_redis:items")] == [at(web, "/once")]
    assert not store.exists("myspider:start_urls:processing")


@pytest.mark.parametrize("seed", range(2))
def test_no_message_is_lost_when_processes_are_killed(
    tmp_path: Path, server: Server, store: redis.Redis, seed: int
) -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=1, latency_ms=5)) as web:
        urls = {at(web, f"/m/{number}") for number in range(200)}
        for url in urls:
            web.mount(HOST, "/m/" + url.rpartition("/")[2], page())
        arguments = {"max_idle_time": "3"}
        running = [moved(tmp_path, server, "myspider_redis", name=name, arguments=arguments) for name in "abc"]
        try:
            store.rpush("myspider:start_urls", *urls)
            after = random.Random(seed).randrange(0, 150)
            wait_until(lambda: len(web.log()) >= after, "the crawl to be under way")
            running[0].kill()
            # Whatever it had taken and not stored is left where others take it when its time is over.
            left = store.zrange("myspider:start_urls:processing", 0, -1)
            if left:
                store.zadd("myspider:start_urls:processing", dict.fromkeys(left, 1), xx=True)
            together(running[1:])
        finally:
            for one in running:
                one.kill()
        assert set(fetches(web.log())) == urls
        assert {item["url"] for item in items(store, "myspider_redis:items")} == urls
        assert not store.exists("myspider:start_urls", "myspider:start_urls:processing", "myspider:start_urls:dead")


def test_flush_on_start_begins_anew_and_leaves_others_alone(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    flush = {"SCHEDULER_FLUSH_ON_START": "True", "arguments": {"seeds": ",".join(web.seeds())}}
    for _ in range(2):
        with moved(tmp_path, server, "dmoz", name="alone", **flush) as running:
            assert running.finish().stats["finish_reason"] == "finished"
    assert set(fetches(web.log()).values()) == {2}
    # Slow enough that neither has finished when the other starts: else that one would begin it once more.
    slow = {**flush, "DOWNLOAD_DELAY": "0.15"}
    done = together([moved(tmp_path, server, "dmoz", name=name, **slow) for name in "ab"])
    assert [part.stats["finish_reason"] for part in done] == ["finished"] * 2
    assert set(fetches(web.log()).values()) == {3}


def test_a_process_that_loads_slowly_flushes_nothing_that_others_did_meanwhile(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    flush = {"SCHEDULER_FLUSH_ON_START": "True", "arguments": {"seeds": ",".join(web.seeds())}}
    slow = {"EXTENSIONS": '{"tests.integration.scrapy_lane.spiders.LoadsSlowly": 0}', "LOADS_WHEN": str(pipe)}
    with moved(tmp_path, server, "dmoz", name="late", **flush, **slow) as late:
        with moved(tmp_path, server, "dmoz", **flush) as running:
            running.finish()
        pipe.write_bytes(b"")
        assert late.finish().exit_code == 0
    assert set(fetches(web.log()).values()) == {1}


def test_persist_keeps_what_was_seen(tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb) -> None:
    arguments = {"seeds": ",".join(web.seeds())}
    for persist, times in (("True", 1), ("True", 1), ("False", 2)):
        with moved(tmp_path, server, "dmoz", arguments=arguments, SCHEDULER_PERSIST=persist) as running:
            running.finish()
        assert set(fetches(web.log()).values()) == {times}
        # The first run's stats are the hash's, and so are those of the one that began anew.
        assert int(store.hget("dmoz:stats", "downloader/response_count")) == len(fetches(web.log()))


@pytest.mark.parametrize(
    ("queue", "order"),
    [("PriorityQueue", [1, 3, 0, 4, 2]), ("FifoQueue", [0, 1, 2, 3, 4]), ("SpiderStack", [4, 3, 2, 1, 0])],
)
def test_the_three_queues(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb, queue: str, order: list[int]
) -> None:
    for path in ("/o", *(f"/o/{number}" for number in range(5))):
        web.mount(HOST, path, page())
    settings = {"SCHEDULER_QUEUE_CLASS": f"{OURS}queue.{queue}", "CONCURRENT_REQUESTS": "1"}
    with moved(tmp_path, server, "prioritised", arguments={"seed": at(web, "/o")}, **settings) as running:
        running.finish()
    assert [item["number"] for item in items(store, "prioritised:items")] == order


def test_a_spiders_own_next_requests_are_crawled(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    for path in ("/one", "/two", "/extra"):
        web.mount(HOST, path, page())
    store.rpush("choosing:start_urls", at(web, "/one"), "no url", at(web, "/two"))
    store.rpush("choosing:extra", at(web, "/extra"))
    with moved(tmp_path, server, "choosing", arguments={"max_idle_time": "1"}) as running:
        assert running.finish().stats["finish_reason"] == "finished"
    found = {item["url"]: item["meta"] for item in items(store, "choosing:items")}
    assert found == {at(web, "/one"): "chosen", at(web, "/two"): "chosen", at(web, "/extra"): None}
    assert store.llen("choosing:start_urls:dead") == 1
    assert not store.exists("choosing:start_urls", "choosing:start_urls:processing", "choosing:extra")


@pytest.mark.parametrize("queue", ["PriorityQueue", "FifoQueue"])
def test_a_master_that_pushes_requests_is_heard_while_spiders_run(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb, queue: str
) -> None:
    for number in range(6):
        web.mount(HOST, f"/m/{number}", page())
    master = getattr(scrapy_redis.queue, queue)(store, Spider(name="myspider_redis"), "%(spider)s:requests")
    master.push(Request(at(web, "/m/0")))
    settings = {"SCHEDULER_QUEUE_CLASS": f"{OURS}queue.{queue}", "arguments": {"max_idle_time": "2"}}
    with moved(tmp_path, server, "myspider_redis", **settings) as running:
        wait_until(lambda: len(items(store, "myspider_redis:items")) == 1, "what waited before the start")
        for number in range(1, 6):
            master.push(Request(at(web, f"/m/{number}"), meta={"job": number}, priority=number))
        wait_until(lambda: len(items(store, "myspider_redis:items")) == 6, "what came later")
        running.finish()
    assert {item["meta"] for item in items(store, "myspider_redis:items")} == {None, 1, 2, 3, 4, 5}
    assert not store.keys("myspider_redis:requests*")


def test_pushed_requests_stay_with_the_process_that_took_them_while_the_frontier_is_away(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    """Else another process would take them half a minute later, too. The lease is extended after a third of it."""
    web.mount(HOST, "/pushed", page())
    processing = "myspider_redis:requests:processing"
    with standalone() as own:
        settings = {"GOSSAMER_FRONTIER": own.address, "GOSSAMER_WORKER__HEARTBEAT": "60"}
        with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "2"}, **settings) as running:
            wait_until(lambda: "Crawling" in running.log, "the process to join the crawl")
            os.kill(own.pid, signal.SIGSTOP)
            try:
                pushed = pickle.dumps({"url": at(web, "/pushed")})
                store.zadd("myspider_redis:requests", {pushed: 0})
                wait_until(lambda: store.zcard(processing) == 1, "the process to take the request")
                [(entry, lease_ends)] = store.zrange(processing, 0, -1, withscores=True)
                wait_until(lambda: store.zscore(processing, entry) > lease_ends, "another lease")
            finally:
                os.kill(own.pid, signal.SIGCONT)
            running.finish()
    assert [item["url"] for item in items(store, "myspider_redis:items")] == [at(web, "/pushed")]
    assert not store.keys("myspider_redis:requests*")


def test_a_pushed_request_that_cannot_be_read_is_kept_with_the_reason(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    web.mount(HOST, "/good", page())
    store.zadd("myspider_redis:requests", {pickle.dumps(print): 0})
    store.zadd("myspider_redis:requests", {pickle.dumps({"url": at(web, "/x"), "callback": "missing"}): 0})
    store.zadd("myspider_redis:requests", {json.dumps({"url": at(web, "/y"), "encoding": "nope"}): 0})
    store.zadd("myspider_redis:requests", {pickle.dumps({"url": at(web, "/good")}): 0})
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "1"}) as running:
        done = running.finish()
    assert [item["url"] for item in items(store, "myspider_redis:items")] == [at(web, "/good")]
    reasons = [json.loads(row)["reason"] for row in store.lrange("myspider_redis:requests:dead", 0, -1)]
    assert sorted(reasons) == [
        "LookupError: unknown encoding: nope",
        "it contains builtins.print, which is not plain data",
        "the spider myspider_redis has no method missing for its callback",
    ]
    assert done.stats["gossamer/pushed_requests"] == 1


def test_a_script_that_consumes_items_needs_another_import_only(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    for path in ("/a", "/b"):
        web.mount(HOST, path, page())
    store.rpush("myspider:start_urls", at(web, "/a"), at(web, "/b"))
    script = [sys.executable, Path(__file__).with_name("process_items.py"), server.socket_path, "myspider_redis:items"]
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "1"}) as running:
        done = subprocess.run([*script, "2"], capture_output=True, text=True, timeout=60, check=False)
        running.finish()
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split()) == sorted(
        ["myspider_redis:items", "myspider_redis:items", at(web, "/a"), at(web, "/b")]
    )


async def test_a_stopped_crawl_leaves_its_messages(
    tmp_path: Path, server: Server, store: redis.Redis, web: FakeWeb
) -> None:
    web.mount(HOST, "/first", page())
    store.rpush("myspider:start_urls", at(web, "/first"))
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "0"}) as running:
        wait_until(lambda: items(store, "myspider_redis:items"), "the first page")
        async with asking(tmp_path, server) as frontier:
            await frontier.stop_crawl(CrawlId(prefix(tmp_path), "myspider_redis"))
        store.rpush("myspider:start_urls", at(web, "/second"))
        done = running.finish()
    assert done.stats["finish_reason"] == "stopped"
    assert store.lrange("myspider:start_urls", 0, -1) == [at(web, "/second").encode()]
    assert not store.exists("myspider:start_urls:processing")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter"}, "write gossamer.scrapy.redis.dupefilter"),
        ({"SCHEDULER_QUEUE_CLASS": "builtins.dict"}, "SCHEDULER_QUEUE_CLASS: "),
        ({"SCHEDULER_QUEUE_KEY": "%(name)s"}, "SCHEDULER_QUEUE_KEY: "),
        ({"REDIS_ITEMS_SERIALIZER": "no.where"}, "REDIS_ITEMS_SERIALIZER: "),
        ({"STATS_KEY": "%(x)s"}, "STATS_KEY: "),
    ],
)
def test_what_is_refused_is_said_by_its_name(
    tmp_path: Path, server: Server, settings: dict[str, str], complaint: str
) -> None:
    with moved(tmp_path, server, "numbers", **settings) as running:
        done = running.finish()
    assert complaint in done.log
    assert done.exit_code == 1


def test_an_override_that_would_not_be_called_is_refused(tmp_path: Path, server: Server, store: redis.Redis) -> None:
    with moved(tmp_path, server, "overriding") as running:
        done = running.finish()
    assert "Overriding.schedule_next_requests is never called; override make_request_from_data" in done.log
    assert done.exit_code == 1


def test_a_key_of_another_kind_is_said(tmp_path: Path, server: Server, store: redis.Redis) -> None:
    store.hset("myspider:start_urls", "a", "b")
    with moved(tmp_path, server, "myspider_redis", arguments={"max_idle_time": "0"}) as running:
        done = running.finish()
    assert "myspider:start_urls is not a list, a set or a sorted set" in done.log
    assert done.exit_code == 0
