"""Answers that come late: polled for once each, at any process, whatever dies meanwhile."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gossamer.errors import BusUnavailable, FrontierUnavailable, RequestRejected, SinkError
from gossamer.model.messages.reader import RequestKind
from tests.servers.valkey import Server

from .conftest import Service, Start

SLOW = RequestKind(
    "slow",
    {
        "type": "object",
        "required": ["uuid", "appid", "slow"],
        "properties": {"uuid": {"type": "string"}, "appid": {"type": "string"}, "slow": {"type": "integer"}},
        "additionalProperties": False,
    },
    50,
    dict,
)


class Slow:
    """Answers when it is let, with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.faults: list[Exception] = []
        self.let = asyncio.Event()

    async def handle(self, request: dict[str, Any], *, format_1_0: bool) -> list[dict[str, Any]]:
        self.asked += 1
        number = self.asked
        await self.let.wait()
        if self.faults:
            raise self.faults.pop(0)
        return [{"uuid": request["uuid"], "appid": request["appid"], "number": number}]


def ask(uuid: str = "u") -> dict[str, Any]:
    return {"uuid": uuid, "appid": "shop", "slow": 1}


async def poll(http: httpx.AsyncClient, poll_id: str = "u") -> dict[str, Any]:
    """Ask until there is an answer."""
    async with asyncio.timeout(60):
        while True:
            answer = await http.post("/poll", json={"poll_id": poll_id})
            if answer.status_code == 200:
                data: dict[str, Any] = answer.json()["data"]
                return data
            assert answer.status_code == 404, answer.text


async def test_a_late_answer_is_polled_for_once(start: Start) -> None:
    slow = Slow()
    async with start(kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0.01) as service:
        assert (await service.feed(ask()))["data"] == {"poll_id": "u"}
        assert (await service.http.post("/poll", json={"poll_id": "u"})).status_code == 404
        slow.let.set()
        assert await poll(service.http) == {"uuid": "u", "appid": "shop", "number": 1}
        assert (await service.http.post("/poll", json={"poll_id": "u"})).status_code == 404
        assert service.told == [{"uuid": "u", "appid": "shop", "number": 1}]


async def test_any_process_can_be_polled(start: Start) -> None:
    slow = Slow()
    async with start(kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0) as service, start() as other:
        await service.feed(ask())
        slow.let.set()
        assert (await poll(other.http))["number"] == 1


async def test_one_uuid_fed_twice_is_answered_twice(start: Start) -> None:
    slow = Slow()
    async with start(kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0) as service:
        await asyncio.gather(service.feed(ask()), service.feed(ask()))
        slow.let.set()
        assert {(await poll(service.http))["number"], (await poll(service.http))["number"]} == {1, 2}


async def test_nothing_is_left_behind(start: Start, one_server: Server, prefix: str) -> None:
    slow = Slow()
    async with start(
        kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0, answer_retention_seconds=60
    ) as service:
        await service.feed(ask())
        await service.feed(ask("never polled"))
        slow.let.set()
        await poll(service.http)
        assert (await service.feed(ask()))["data"] in ({"poll_id": "u"}, {"uuid": "u", "appid": "shop", "number": 3})
    keys = one_server.command("KEYS", f"{{{prefix}:poll}}:*")
    assert all(0 < one_server.command("PTTL", key) <= 60_000 for key in keys)
    assert not [key for key in keys if b":asked" in key and b":u" not in key]


async def test_a_handler_that_fails_late_is_answered_with_the_reason(start: Start) -> None:
    for fault, reason in (
        (RequestRejected("not today", field="slow"), "not today"),
        (ZeroDivisionError("by zero"), "its handler failed: ZeroDivisionError: by zero"),
    ):
        slow = Slow()
        slow.faults = [fault]
        async with start(kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0.01) as service:
            await service.feed(ask())
            slow.let.set()
            answer = await poll(service.http)
            assert (answer["action"], answer["uuid"], answer["reason"]) == ("rejected", "u", reason)


async def test_a_handler_that_fails_at_once_says_so(start: Start) -> None:
    slow = Slow()
    slow.let.set()
    async with start(kinds=[SLOW], handlers={"slow": slow}) as service:
        for fault, status, message in (
            (RequestRejected("not today"), 400, "JSON did not validate against schema."),
            (FrontierUnavailable("gone"), 500, "Unable to connect to Redis"),
            (BusUnavailable("gone"), 500, "Unable to connect to Kafka"),
            (ZeroDivisionError("by zero"), 500, "An error occurred while processing your request."),
        ):
            slow.faults = [fault]
            answer = await service.http.post("/feed", json=ask())
            assert (answer.status_code, answer.json()["status"]) == (status, "FAILURE")
            assert answer.json()["error"]["message"] == message


async def test_an_outage_only_delays_a_late_answer(start: Start) -> None:
    slow = Slow()
    slow.faults = [FrontierUnavailable("gone"), FrontierUnavailable("gone")]
    async with start(kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0) as service:
        await service.feed(ask())
        slow.let.set()
        assert (await poll(service.http))["number"] == 3


@pytest.mark.parametrize("fault", [BusUnavailable("gone"), SinkError("the blob store is gone")])
async def test_a_bus_that_is_away_keeps_no_answer_back(start: Start, fault: Exception) -> None:
    told: list[int] = []

    async def answered(messages: list[dict[str, Any]]) -> None:
        told.append(len(messages))
        if len(told) < 3:
            raise fault

    slow = Slow()
    slow.let.set()
    async with start(kinds=[SLOW], handlers={"slow": slow}, publish_answers=answered) as service:
        assert (await service.feed(ask()))["data"]["number"] == 1
        async with asyncio.timeout(60):
            while len(told) < 3:
                await service.http.get("/healthz")


async def test_a_process_that_stops_leaves_its_questions_to_the_others(start: Start) -> None:
    stuck, slow = Slow(), Slow()
    slow.let.set()
    async with start(kinds=[SLOW], handlers={"slow": slow}, owner_timeout_seconds=3600) as other:
        async with start(
            kinds=[SLOW], handlers={"slow": stuck}, feed_wait_seconds=0.05, owner_timeout_seconds=3600
        ) as service:
            await service.feed(ask())
            assert (await other.http.post("/poll", json={"poll_id": "u"})).status_code == 404
        assert await poll(other.http) == {"uuid": "u", "appid": "shop", "number": 1}
        assert (stuck.asked, slow.asked) == (1, 1)
        assert other.told == [{"uuid": "u", "appid": "shop", "number": 1}]


@asynccontextmanager
async def process(address: str, prefix: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """An API that is a process of its own and never answers the kind `slow`; its address."""
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",  # puts the folder it starts in on the path: `tests` is no installed package
        "tests.integration.api.stuck_process",
        address,
        prefix,
        cwd=Path(__file__).parents[3],
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    try:
        yield child, (await child.stdout.readline()).decode().strip()
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def test_a_process_that_is_killed_is_stood_in_for(start: Start, one_server: Server, prefix: str) -> None:
    slow = Slow()
    slow.let.set()
    async with (
        start(kinds=[SLOW], handlers={"slow": slow}) as other,
        process(one_server.address, prefix) as (child, address),
    ):
        async with httpx.AsyncClient(base_url=address, verify=False) as http:
            assert (await http.post("/feed", json=ask())).json()["data"] == {"poll_id": "u"}
            assert (await other.http.post("/poll", json={"poll_id": "u"})).status_code == 404
        child.send_signal(signal.SIGKILL)
        await child.wait()
        assert await poll(other.http) == {"uuid": "u", "appid": "shop", "number": 1}
        assert slow.asked == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (RequestRejected("not today"), "not today"),
        (ZeroDivisionError("by zero"), "its handler failed: ZeroDivisionError: by zero"),
        (FrontierUnavailable("gone"), None),
    ],
)
async def test_a_handler_that_fails_after_a_takeover_is_answered_once(
    start: Start, fault: Exception, reason: str | None
) -> None:
    """The client polls as before: it gets the rejection, or after an outage the answer, and nothing is left to do."""
    stuck, slow = Slow(), Slow()
    slow.let.set()
    slow.faults = [fault]
    async with start(kinds=[SLOW], handlers={"slow": slow}, owner_timeout_seconds=3600) as other:
        async with start(
            kinds=[SLOW], handlers={"slow": stuck}, feed_wait_seconds=0.05, owner_timeout_seconds=3600
        ) as service:
            await service.feed(ask())
        answer = await poll(other.http)
        if reason is None:
            assert answer == {"uuid": "u", "appid": "shop", "number": 2}
        else:
            assert (answer["action"], answer["uuid"], answer["reason"]) == ("rejected", "u", reason)
            assert slow.asked == 1
        assert (await other.http.post("/poll", json={"poll_id": "u"})).status_code == 404


async def test_too_many_questions_at_once_are_sent_away(start: Start, service: Service) -> None:
    slow = Slow()
    async with start(
        kinds=[SLOW], handlers={"slow": slow}, feed_wait_seconds=0, max_requests_per_second=10_000
    ) as busy:
        answers = []
        for _ in range(11):  # each waits twice: for its answer, and to keep it
            answers += await asyncio.gather(*(busy.http.post("/feed", json=ask(f"u{n}")) for n in range(50)))
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert refused[0].json()["error"]["message"] == "Too busy"
        assert refused[0].headers["retry-after"]
        slow.let.set()
