"""The shared cache of look-ups: who makes one, at which rate, and how long its keys live."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from gossamer.model.crawl import Rate
from gossamer.scrapy.pipelines.cache import LookupCache
from tests.servers.valkey import Server, wait_until


@pytest.fixture(autouse=True)
def emptied(server: Server) -> None:
    server.command("FLUSHALL")


@contextlib.asynccontextmanager
async def caches(server: Server, count: int, rate: Rate, claim_seconds: float = 20.0) -> AsyncIterator[Any]:
    """So many caches, as those of processes are."""
    made = [LookupCache(server.address, "geo", rate, claim_seconds=claim_seconds) for _ in range(count)]
    try:
        yield made
    finally:
        for cache in made:
            await cache.close()


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(wait_until, condition, "a key expires")


FAST = Rate(hits=1000, window_seconds=1)


async def test_one_process_makes_a_look_up_and_the_others_get_its_answer(server: Server) -> None:
    async with caches(server, 2, FAST) as (one, two):
        assert await one.read("a") is None
        assert (await one.claim("a")).state == "go"
        assert (await one.claim("a")).state == "go"  # another attempt
        waiting = await two.claim("a")
        assert waiting.state == "wait"
        assert 0 < waiting.seconds <= 20.2
        await one.settle("a", answer=b'{"lat":1}', failure="", life_seconds=60)
        assert (await two.claim("a"))[:2] == ("answer", b'{"lat":1}')
        assert (await two.read("a"))[:2] == ("answer", b'{"lat":1}')


async def test_another_process_takes_over_from_one_that_died(server: Server) -> None:
    async with caches(server, 2, FAST, claim_seconds=0.2) as (dead, other):
        assert (await dead.claim("a")).state == "go"
        await until(lambda: server.command("EXISTS", "geo/claim:a") == 0)
        assert (await other.claim("a")).state == "go"
        # A late failure of the first one does not end the claim of the other.
        await dead.settle("a", answer=None, failure="late", life_seconds=60)
        assert server.command("GET", "geo/claim:a") is not None


async def test_a_failure_is_shared_until_it_expires(server: Server) -> None:
    async with caches(server, 2, FAST) as (one, two):
        await one.claim("a")
        await one.settle("a", answer=None, failure="status 500", life_seconds=0.2)
        assert (await two.claim("a"))[:2] == ("failure", b"status 500")
        await until(lambda: server.command("EXISTS", "geo/failed:a") == 0)
        assert (await two.claim("a")).state == "go"


async def test_processes_together_keep_the_rate(server: Server) -> None:
    rate = Rate(hits=10, window_seconds=0.5)
    begun: list[float] = []

    async def look_up(cache: LookupCache, name: str) -> None:
        for number in range(8):
            assert (await cache.claim(f"{name}{number}")).state == "go"
            begun.append(time.monotonic())

    async with caches(server, 4, rate) as several:
        await asyncio.gather(*(look_up(cache, f"{number}-") for number, cache in enumerate(several)))
    assert len(begun) == 32
    assert max(sum(at <= other < at + 0.5 for other in begun) for at in begun) <= 10


async def test_every_key_expires_and_is_short(server: Server) -> None:
    async with caches(server, 1, FAST) as (cache,):
        for key in ("a", "ü" * 5000, "\ud800", "b:c/d"):
            assert (await cache.claim(key)).state == "go"
            await cache.settle(key, answer=b"1", failure="", life_seconds=60)
            assert (await cache.read(key)).state == "answer"
            assert (await cache.claim("failed " + key)).state == "go"
            await cache.settle("failed " + key, answer=None, failure="no", life_seconds=60)
        await cache.claim("claimed")
    names = server.command("KEYS", "*")
    assert len(names) == 10
    assert all(0 < server.command("PTTL", name) <= 60_000 for name in names)
    assert all(len(name) <= 220 for name in names)
