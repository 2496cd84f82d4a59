"""The address service: what it says counts, and what it does not say stops nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from gossamer.errors import BadInput
from gossamer.fakeweb import Ending, WebSpec, html, plain, redirect, serve
from gossamer.fakeweb.answer import Answer
from gossamer.fetch.client import HttpClient
from gossamer.fetch.egress import AddressService, EgressMonitor
from gossamer.fetch.exchange import Timeouts
from gossamer.net.resolve import Resolver
from gossamer.telemetry.logs import Troubles

PATTERN = r"[0-9A-Fa-f:.]{3,}"


@asynccontextmanager
async def asked(
    *answers: Answer,
    pattern: str = PATTERN,
    allowed: bool = True,
    refresh_seconds: float = 3600.0,
    host: str = "ip.test",
) -> AsyncIterator[tuple[EgressMonitor, list[str]]]:
    """An egress named `mine` whose service gives these answers, the last one for ever; and what was said."""
    said: list[str] = []
    async with serve(WebSpec(hosts=1, pages=1), mounts={("ip.test", "/"): answers}) as web:
        resolver = Resolver(overrides={"ip.test": "127.0.0.1"} if allowed else {})
        client = HttpClient(resolver, timeouts=Timeouts(first_byte=0.2, total=0.2))
        service = AddressService(f"http://{host}:{web.port}/", pattern=pattern, user_agent="x/1")
        try:
            yield (
                EgressMonitor(
                    service, client.fetch, Troubles(said.append), fallback_name="mine", refresh_seconds=refresh_seconds
                ),
                said,
            )
        finally:
            await client.close()
            resolver.close()


@pytest.mark.parametrize(
    ("answer", "address"),
    [
        (plain("192.0.2.7\n"), "192.0.2.7"),
        (plain("2001:DB8:0:0::1"), "2001:db8::1"),
        (html("<p>Added: your address is <b>192.0.2.7</b>.</p>"), "192.0.2.7"),
        (plain('{"ip": "[2001:db8::7]", "asn": 64496}'), "2001:db8::7"),
        (plain("You have 192.0.2.7."), "192.0.2.7"),
    ],
)
async def test_the_first_address_in_the_answer_counts(answer: Answer, address: str) -> None:
    async with asked(answer) as (egress, said):
        assert await egress.refresh()
        assert egress.name == address
        assert said == []


async def test_the_patterns_group_chooses() -> None:
    async with asked(plain("via 192.0.2.1 from 192.0.2.2"), pattern=r"from ([0-9.]+)") as (egress, _):
        assert await egress.refresh()
        assert egress.name == "192.0.2.2"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (plain("nothing here, 300.1.1.1"), "its response contains no address"),
        (plain("192.0.2.7", status=503), "it responded with status 503"),
        (redirect("http://elsewhere.test/"), "it responded with status 302"),
        (Answer(body=b"192.0.2.7", ending=Ending.STALL), "The whole response took too long"),
        (Answer(ending=Ending.REFUSE), "The connection ended before the response was complete"),
        (Answer(body=b"SSH-2.0-x\r\n", raw=True), "The response is not HTTP"),
    ],
)
async def test_without_an_answer_the_operators_name_counts_and_it_is_said(answer: Answer, why: str) -> None:
    async with asked(answer) as (egress, said):
        assert not await egress.refresh()
        assert not await egress.refresh()
        assert egress.name == "mine"
        (sentence,) = said
        assert why in sentence
        assert sentence.endswith("Until it does, politeness budgets are kept for the egress mine.")


async def test_the_address_guard_applies() -> None:
    async with asked(plain("192.0.2.7"), allowed=False, host="127.0.0.1") as (egress, said):
        assert not await egress.refresh()
        assert "not on the public internet" in said[0]


async def test_it_is_asked_again_and_the_last_word_counts() -> None:
    """A failure between two answers changes nothing."""
    changes: list[str] = []
    enough = asyncio.Event()

    def changed(name: str) -> None:
        changes.append(name)
        if len(changes) == 2:
            enough.set()

    answers = (plain("192.0.2.1"), plain("192.0.2.1"), plain("", status=500), plain("192.0.2.2"), plain("192.0.2.3"))
    async with asked(*answers, refresh_seconds=0.01) as (egress, said):
        assert await egress.refresh()
        task = asyncio.create_task(egress.run(changed))
        await asyncio.wait_for(enough.wait(), 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert changes == ["192.0.2.2", "192.0.2.3"]
    assert "it responded with status 500" in said[0]
    assert said[1:] == ["The address service returned 192.0.2.2 as the address of requests."]


async def test_the_delay_grows_to_the_refresh_interval_and_stays_there(monkeypatch: pytest.MonkeyPatch) -> None:
    delays: list[float] = []
    enough = asyncio.Event()
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        delays.append(seconds)
        if len(delays) == 9:
            enough.set()
        await sleep(0)

    answers = (*[plain("", status=500)] * 6, plain("192.0.2.1"), plain("", status=500))
    async with asked(*answers, refresh_seconds=30.0) as (egress, _):
        assert not await egress.refresh()
        monkeypatch.setattr("gossamer.fetch.egress.asyncio", SimpleNamespace(sleep=record))
        task = asyncio.create_task(egress.run(lambda name: None))
        await asyncio.wait_for(enough.wait(), 20)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert delays == [5, 10, 20, 30, 30, 30, 30, 5, 10]


@pytest.mark.parametrize(("url", "pattern"), [("ftp://ip.test/", PATTERN), ("", PATTERN), ("http://ip.test/", "(")])
def test_what_cannot_be_used_is_refused(url: str, pattern: str) -> None:
    with pytest.raises(BadInput):
        AddressService(url, pattern=pattern, user_agent="x/1")
