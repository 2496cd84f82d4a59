"""Schedules submit their crawl requests once for each instant, whatever happens to managers, answers and service."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Connection, select, update

from gossamer.errors import BadInput
from gossamer_platform.delivery.crawls import CrawlService, CrawlSubmitter
from gossamer_platform.schedules.firing import fire_due
from gossamer_platform.state import crawl_firings, schedules, webhooks
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.row_page import ALL_ROWS
from gossamer_platform.state.tables import crawl_firings as firing_table
from gossamer_platform.state.tables import deliveries
from gossamer_platform.state.tables import schedules as schedule_table
from tests.servers.receiver import Receiver, receiver
from tests.servers.schedules import add_schedule

_REQUESTS = [{"appid": "shop", "crawlid": "nightly", "url": "https://example.com/", "fresh": True}]


def answer(*statuses: int, reason: str = "") -> bytes:
    """The results of a batch."""
    items = [{"status": status, "field": "url" if status == 400 else "", "reason": reason} for status in statuses]
    return json.dumps({"items": items}).encode()


@pytest.fixture
def service() -> Iterator[Receiver]:
    with receiver() as found:
        found.url = found.url.removesuffix("/hook?x=1")
        found.status, found.answer = 207, answer(201)
        yield found


def _add(connection: Connection, name: str, **columns: object) -> int:
    return add_schedule(connection, name, crawl=_REQUESTS, **columns)


def _be_due(connection: Connection, number: int) -> None:
    due = schedules.database_time(connection) - 0.1
    connection.execute(update(schedule_table).where(schedule_table.c.id == number).values(next_at=due, due_at=due))


async def _fired(database: StateDatabase, name: str = "nightly") -> int:
    """Add a schedule, and fire it. Its number."""
    number = await database.write(lambda c: _add(c, name))
    await database.write(lambda c: _be_due(c, number))
    assert await database.write(fire_due) == 1
    return number


async def _submit_until(
    database: StateDatabase, service: CrawlService, done: Callable[[list[Any]], bool], *, managers: int = 1
) -> list[Any]:
    """Run submitters until the firings are as wanted, and return them."""
    stopping = asyncio.Event()
    tasks = [asyncio.create_task(CrawlSubmitter(database, service).run(stopping)) for _ in range(managers)]
    try:
        async with asyncio.timeout(60):
            while not done(rows := await database.read(_firings)):  # noqa: ASYNC110 (the state is in a database)
                await asyncio.sleep(0.05)
    finally:
        stopping.set()
        await asyncio.gather(*tasks)
    return rows


def _firings(connection: Connection) -> list[Any]:
    return list(connection.execute(select(firing_table).order_by(firing_table.c.id)))


def _have_ended(rows: list[Any]) -> bool:
    return all(row.state != "waiting" for row in rows)


def _keys(service: Receiver) -> list[str]:
    return [event.headers["idempotency-key"] for event in service.events]


async def test_an_instant_is_one_firing_with_one_key(database: StateDatabase, service: Receiver) -> None:
    """Three managers; the first two answers are lost."""
    for name in ("one", "two", "three"):
        await _fired(database, name)
    service.lost = 2
    rows = await _submit_until(database, CrawlService(service.url, "secret"), _have_ended, managers=3)
    assert [(row.state, row.result) for row in rows] == [("submitted", "crawl shop/nightly: 1 request added")] * 3
    assert len(set(_keys(service))) == 3
    assert len(service.events) == 5
    for event in service.events:
        assert (event.body, event.headers["authorization"]) == (_REQUESTS, "Bearer secret")
    found = await database.read(lambda c: schedules.list_schedules(c, "shop", ALL_ROWS))
    assert {row.last_result for row in found} == {"crawl shop/nightly: 1 request added"}


async def test_the_key_follows_from_schedule_and_instant(database: StateDatabase) -> None:
    number = await database.write(lambda c: _add(c, "nightly"))

    def fire(connection: Connection) -> list[str]:
        row = schedules.find_schedule(connection, number)
        assert row is not None
        names = [(1.0, ""), (1.0, ""), (2.0, ""), (3.0, "run:a"), (4.0, "run:a"), (5.0, "run:b")]
        return [crawl_firings.add_firing(connection, row, instant=at, name=name).key for at, name in names]

    one, same, two, asked, again, other = await database.write(fire)
    assert (one, asked) == (same, again)
    assert len({one, two, asked, other}) == len(await database.read(_firings)) == 4


async def test_a_manager_that_died_is_followed_by_another_with_the_same_key(
    database: StateDatabase, service: Receiver
) -> None:
    await _fired(database)
    [dead] = await database.write(lambda c: crawl_firings.lease_firings(c, 9))
    assert not await database.read(crawl_firings.has_due)
    await database.write(lambda c: c.execute(update(firing_table).values(leased_until=0.0)))
    [row] = await _submit_until(database, CrawlService(service.url), _have_ended)
    assert (row.state, _keys(service)) == ("submitted", [dead.key])
    # Its result comes too late.
    await database.write(lambda c: crawl_firings.record_failure(c, dead, "late", None, is_final=True))
    [row] = await database.read(_firings)
    assert (row.state, row.attempts) == ("submitted", 2)


async def test_an_outage_is_waited_for_and_then_reported(
    database: StateDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listen(connection: Connection) -> None:
        columns = {"url": "http://x/", "events": ["schedule.failed"], "slow_factor": 2.0}
        webhooks.add_webhook(connection, "shop", {**columns, "secret_name": "n", "secret": "s"})

    number = await _fired(database)
    await database.write(listen)
    nowhere = CrawlService("http://127.0.0.1:1")
    [row] = await _submit_until(database, nowhere, lambda rows: rows[0].attempts >= 2 and rows[0].result)
    assert row.state == "waiting"
    assert "http://127.0.0.1:1 cannot be reached" in row.result
    monkeypatch.setattr(crawl_firings, "GIVE_UP_SECONDS", 0.0)
    await database.write(lambda c: c.execute(update(firing_table).values(next_at=0.0)))
    [row] = await _submit_until(database, nowhere, _have_ended)
    assert (row.state, row.requests) == ("failed", [])
    schedule = await database.read(lambda c: schedules.find_schedule(c, number))
    assert schedule is not None
    assert schedule.last_result.startswith("failed: http://127.0.0.1:1 cannot be reached")
    [event] = await database.read(lambda c: c.execute(select(deliveries)).all())
    assert (event.event, event.body["data"]["crawls"]) == ("schedule.failed", ["shop/nightly"])
    assert event.body["data"]["schedule"]["result"] == schedule.last_result


async def test_a_refusal_is_final(database: StateDatabase, service: Receiver) -> None:
    answers = [
        (207, answer(201, 200, 400, reason="must be a URL"), "1 of 3 requests refused: url: must be a URL"),
        (207, answer(409, reason="the crawl is stopped"), "1 of 1 requests refused: the crawl is stopped"),
        (207, b"[]", "answered with something else than results"),
        (400, b'{"detail": "a batch may have 10,000 requests"}', "answered 400: a batch may have"),
        (401, b"", "the crawl service answered 401"),
        (302, b"", "the crawl service answered 302"),
        (207, answer(400, reason="nul \0 and \ud800"), "nul ? and ?"),
    ]
    for number, (status, body, result) in enumerate(answers, 1):
        service.status, service.answer = status, body
        await _fired(database, f"s{number}")
        rows = await _submit_until(database, CrawlService(service.url), _have_ended)
        assert (rows[-1].state, rows[-1].status, len(service.events)) == ("failed", status, number)
        assert result in rows[-1].result


async def test_what_the_crawl_knew_already_is_said(database: StateDatabase, service: Receiver) -> None:
    service.status, service.answer = 503, b"{}"
    await _fired(database)
    await _submit_until(database, CrawlService(service.url), lambda rows: rows[0].status == 503)
    service.status, service.answer = 207, answer(200, 201)
    [row] = await _submit_until(database, CrawlService(service.url), _have_ended)
    assert (row.state, row.result) == ("submitted", "crawl shop/nightly: 1 request added, 1 known already")


async def test_a_schedule_is_deleted_with_its_firings(database: StateDatabase) -> None:
    number = await _fired(database)
    assert await database.write(lambda c: schedules.delete_schedule(c, number))
    assert await database.read(_firings) == []


async def test_old_firings_are_forgotten(database: StateDatabase, service: Receiver) -> None:
    await _fired(database)
    await _submit_until(database, CrawlService(service.url), _have_ended)
    await database.write(crawl_firings.forget_firings)
    assert len(await database.read(_firings)) == 1
    await database.write(lambda c: c.execute(update(firing_table).values(ended_at=1.0)))
    await database.write(crawl_firings.forget_firings)
    assert await database.read(_firings) == []


@pytest.mark.parametrize("url", ["localhost:5343", "ftp://a/", "http://", "http://u:p@a/", "http://a/?x", "http://a:x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(BadInput, match="crawl_service"):
        CrawlService.of(url, "")


def test_an_address_that_is_none_is_shown_without_its_password() -> None:
    with pytest.raises(BadInput, match=r"crawl_service: 'http://\*\*\*@a' is no address"):
        CrawlService.of("http://u:s3/cret@a", "")


def test_crawls_have_addresses() -> None:
    service = CrawlService.of("http://a:5343/", "t")
    assert service.address_of("a b", "c/d") == "http://a:5343/v1/crawls/a%20b/c%2Fd"
    assert CrawlService("").address_of("a", "b") is None
    with pytest.raises(BadInput, match="--crawl-service"):
        CrawlService("").require()
