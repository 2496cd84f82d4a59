"""What becomes of connections: kept, bounded, expired, found dead, cancelled; and bodies that share one budget."""

import asyncio
import math
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gossamer.errors import ConnectFailed, ConnectionLost, ConnectTimeout, FetchError, NotSentInTime, TotalTimeout
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.client import HttpClient, PoolLimits
from gossamer.fetch.exchange import FetchRequest, ResponseLimits, Timeouts
from gossamer.net.resolve import Resolver
from tests.servers.bad_http import BadServer, NextRequest, Reset, Stall, Step, run_bad_server

HOST = "kept.test"
HI = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
PATIENT = Timeouts(30, 30, 30, 60)


class Fixed:
    """A resolver that knows one answer."""

    def __init__(self, *ips: str) -> None:
        self.ips = ips

    async def addresses(self, host: str, port: int, *, allow_private: bool = False) -> tuple[str, ...]:
        """The same for every host."""
        return self.ips

    def cached_addresses(self, host: str, *, allow_private: bool) -> tuple[str, ...]:
        """The same for every host."""
        return self.ips


@asynccontextmanager
async def serving(script: list[Step], **options: object) -> AsyncIterator[tuple[HttpClient, BadServer, FetchRequest]]:
    """A client, a server with one script, and an exchange between them."""
    options = {"timeouts": PATIENT, **options}
    client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}), **options)  # type: ignore[arg-type]
    async with run_bad_server({"/": script}) as server:
        try:
            yield client, server, FetchRequest(f"http://{HOST}:{server.port}/")
        finally:
            await client.close()
            assert (client.open_connections, client.bodies_in_flight_bytes) == (0, 0)


async def test_a_kept_connection_that_died_is_replaced_unnoticed() -> None:
    """The server hung up between two requests, or right after the second one arrived."""
    for ending in ([], [NextRequest()], [NextRequest(), Reset()]):
        async with serving([HI, *ending]) as (client, server, exchange):
            for _ in range(3):
                assert (await client.fetch(exchange)).body == b"hi"
            assert server.connections >= 2


async def test_what_may_not_be_repeated_is_not() -> None:
    """A POST may have done its work before the connection died."""
    async with serving([HI, NextRequest()]) as (client, server, exchange):
        assert (await client.fetch(exchange)).body == b"hi"
        with pytest.raises(ConnectionLost):
            await client.fetch(FetchRequest(exchange.url, method="POST", body=b"x"))
        assert server.connections == 1


async def test_what_waited_too_long_is_not_sent_and_its_connection_serves_the_next() -> None:
    async with serving([HI]) as (client, server, exchange):
        with pytest.raises(NotSentInTime) as late:
            await client.fetch(structs.replace(exchange, send_by=time.monotonic() - 60))
        assert not late.value.connecting
        assert (await client.fetch(structs.replace(exchange, send_by=time.monotonic() + 60))).body == b"hi"
        assert server.connections == 1


async def test_a_charged_request_that_a_kept_connection_lost_is_not_repeated_but_reported() -> None:
    """Its hit is spent; a POST may have done its work, and is not repeatable with any hit."""
    async with serving([HI, NextRequest(), Reset()]) as (client, server, exchange):
        for method, repeatable in (("GET", True), ("POST", False)):
            charged = structs.replace(exchange, method=method, send_by=math.inf)
            assert (await client.fetch(charged)).body == b"hi"
            asked = len(server.requests)
            with pytest.raises(ConnectionLost) as lost:
                await client.fetch(charged)
            assert (lost.value.repeatable, len(server.requests)) == (repeatable, asked + 1)


@pytest.mark.parametrize("send_by", [None, math.inf])
async def test_after_two_lost_connections_each_request_gets_its_own(send_by: float | None) -> None:
    async with serving([HI, NextRequest(), Reset()]) as (client, server, exchange):
        asked = structs.replace(exchange, send_by=send_by)
        lost = 0
        for _ in range(10):
            try:
                assert (await client.fetch(asked)).body == b"hi"
            except ConnectionLost:
                lost += 1
        assert lost == (0 if send_by is None else 2)
        assert len(server.requests) == server.connections + 2
        assert client.open_connections == 0


async def test_one_site_that_loses_connections_changes_nothing_for_others() -> None:
    async with (
        run_bad_server({"/": [HI, NextRequest(), Reset()]}) as bad,
        run_bad_server({"/": [step for _ in range(10) for step in (HI, NextRequest())]}) as good,
    ):
        client = HttpClient(Fixed("127.0.0.1"), timeouts=PATIENT)
        for _ in range(5):
            for server in (bad, good):
                await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/"))
        assert good.connections == 1
        await client.close()


async def test_a_new_connection_that_dies_is_not_replaced() -> None:
    """One retry is for a kept connection's bad luck, not for a broken server."""
    async with serving([]) as (client, server, exchange):
        with pytest.raises(ConnectionLost):
            await client.fetch(exchange)
        assert server.connections == 1


async def test_an_answer_that_began_is_not_asked_for_again() -> None:
    """Part of it came, so the server did get the request."""
    async with serving([HI, NextRequest(), b"HTTP/1.1 200"]) as (client, server, exchange):
        assert (await client.fetch(exchange)).body == b"hi"
        with pytest.raises(ConnectionLost):
            await client.fetch(exchange)
        assert server.connections == 1


async def test_what_comes_unasked_on_an_idle_connection_is_not_the_next_answer() -> None:
    """An answer sent ahead would be taken for another page's."""
    lie = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nlie"
    async with serving([HI + lie, Stall()]) as (client, server, exchange):
        for _ in range(3):
            assert (await client.fetch(exchange)).body == b"hi"
        assert server.connections == 3


async def test_connections_per_address_are_bounded() -> None:
    """Who finds no room waits for an answer to others, and gets a kept connection."""
    async with serving(
        [step for _ in range(30) for step in (HI, NextRequest())], connections=PoolLimits(per_address=3)
    ) as (
        client,
        server,
        exchange,
    ):
        bodies = await asyncio.gather(*(client.fetch(exchange) for _ in range(30)))
        assert len(bodies) == 30
        assert server.connections <= 3


async def test_connections_in_total_are_bounded() -> None:
    """An idle connection to one host makes room for another."""
    async with serving([HI, Stall()], connections=PoolLimits(total=2)) as (client, server, _):
        urls = [f"http://h{number}.test:{server.port}/" for number in range(20)]
        answers = await asyncio.gather(*(client.fetch(FetchRequest(url)) for url in urls))
        assert [answer.body for answer in answers] == [b"hi"] * 20
        assert client.open_connections <= 2
        assert server.connections == 20


async def test_waiting_for_a_connection_ends_with_the_total_timeout() -> None:
    """And so does the exchange that was waited for."""
    async with serving([Stall()], connections=PoolLimits(total=1), timeouts=Timeouts(30, 30, 30, 0.3)) as (
        client,
        _,
        exchange,
    ):
        results = await asyncio.gather(*(client.fetch(exchange) for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [TotalTimeout] * 3


async def test_an_idle_connection_expires() -> None:
    """The server sees it end by itself."""
    ended = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HI)
        await reader.read()
        ended.set()
        writer.close()

    client = HttpClient(Fixed("127.0.0.1"), connections=PoolLimits(idle_seconds=0.05), timeouts=PATIENT)
    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        await client.fetch(FetchRequest(f"http://{HOST}:{port}/"))
        await asyncio.wait_for(ended.wait(), 60)
        assert client.open_connections == 0
        await client.close()


async def test_a_cancelled_exchange_closes_its_connection() -> None:
    """Whether it waits for the answer, or for a free connection."""
    async with serving([Stall()], connections=PoolLimits(total=1)) as (client, server, exchange):
        tasks = [asyncio.create_task(client.fetch(exchange)) for _ in range(3)]
        await server.requested.wait()
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert client.open_connections == 0


@pytest.mark.parametrize("secure", [False, True])
def test_cancelled_at_any_step_nothing_stays_behind(secure: bool) -> None:
    """Each exchange is cancelled some rounds of the loop later than the one before; closing waits for what is left."""

    async def main() -> None:
        async with serving([HI, Stall()]) as (client, server, _):
            url = f"http{'s' if secure else ''}://{HOST}:{server.port}/"
            for rounds in range(40):
                task = asyncio.create_task(client.fetch(FetchRequest(url)))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    for factory in (asyncio.new_event_loop, uvloop.new_event_loop):
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(asyncio.wait_for(main(), 60))


async def test_closing_ends_what_is_under_way() -> None:
    """And nothing new begins."""
    async with serving([Stall()]) as (client, server, exchange):
        task = asyncio.create_task(client.fetch(exchange))
        await server.requested.wait()
        await client.close()
        with pytest.raises(ConnectionLost):
            await task
        with pytest.raises(RuntimeError):
            await client.fetch(exchange)


async def test_the_next_address_is_tried() -> None:
    """In the order given; the answer tells which one it was."""
    async with run_bad_server({"/": [HI, NextRequest(), HI]}) as server:
        client = HttpClient(Fixed("127.0.0.2", "127.0.0.1"), timeouts=PATIENT)
        answer = await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/"))
        assert (answer.ip, answer.reused) == ("127.0.0.1", False)
        again = await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/"))
        assert (again.ip, again.reused) == ("127.0.0.1", True)
        await client.close()
        refused = HttpClient(Fixed("127.0.0.2", "127.0.0.3"), timeouts=PATIENT)
        with pytest.raises(ConnectFailed, match=r"127\.0\.0\.3"):
            await refused.fetch(FetchRequest(f"http://{HOST}:{server.port}/"))
        assert refused.open_connections == 0
        await refused.close()


async def test_connecting_may_take_too_long() -> None:
    """A full backlog makes the kernel drop the next SYN, as a firewall does."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        client = HttpClient(Fixed("127.0.0.1"), timeouts=Timeouts(0.2, 30, 30, 60))
        with pytest.raises(ConnectTimeout):
            await client.fetch(FetchRequest(f"http://{HOST}:{full.getsockname()[1]}/"))
        assert client.open_connections == 0
        await client.close()


async def test_a_tls_handshake_may_take_too_long() -> None:
    """The port accepts and says nothing."""
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        client = HttpClient(Fixed("127.0.0.1"), timeouts=Timeouts(0.2, 30, 30, 60))
        with pytest.raises(ConnectTimeout):
            await client.fetch(FetchRequest(f"https://{HOST}:{mute.getsockname()[1]}/"))
        await client.close()


async def test_bodies_share_a_budget_and_all_arrive() -> None:
    """Twenty bodies of 2 MB with a budget of 1 MB: what is held stays near the budget, and nobody starves."""
    size = 2_000_000
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    most = 0
    async with serving([answer], budget=ByteBudget(1_000_000)) as (client, _, exchange):

        async def fetch() -> None:
            nonlocal most
            fetched = await client.fetch(exchange)
            assert len(fetched.body) == size

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, client.bodies_in_flight_bytes)
                await asyncio.sleep(0)

        looking = asyncio.create_task(look())
        await asyncio.gather(*(fetch() for _ in range(20)))
        looking.cancel()
        # The budget, one leader's body, and one read (256 KiB) of each of the others.
        assert most <= 1_000_000 + size + 20 * 262_144


async def test_a_slow_leader_does_not_hold_up_the_others() -> None:
    """One connection fills the budget and then stalls; the next body still arrives."""
    part = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"x" * 5000
    quick = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"y" * 200_000
    client = HttpClient(Fixed("127.0.0.1"), timeouts=PATIENT, budget=ByteBudget(1000))
    async with run_bad_server({"/slow": [part, Stall()], "/quick": [quick]}) as server:
        slow = asyncio.create_task(client.fetch(FetchRequest(f"http://{HOST}:{server.port}/slow")))
        while not client.bodies_in_flight_bytes:  # noqa: ASYNC110  # only the client's memory tells when it arrived
            await asyncio.sleep(0)
        fetched = await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/quick"))
        assert len(fetched.body) == 200_000
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        await client.close()
        assert client.bodies_in_flight_bytes == 0


async def test_a_complete_answer_waits_for_room() -> None:
    """While what is kept fills the budget, a page is not even decoded; it counts meanwhile. Other answers go on."""
    size = 1_000_000
    large = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size
    budget = ByteBudget(4 * size)
    client = HttpClient(Fixed("127.0.0.1"), timeouts=PATIENT, budget=budget)
    async with run_bad_server({"/large": [large], "/small": [HI]}) as server:
        page = FetchRequest(f"http://{HOST}:{server.port}/large")
        budget.retain(2 * size)
        pages = [asyncio.create_task(client.fetch(page, wait_for_room=True)) for _ in range(2)]
        while budget.complete_bytes < 2 * size:  # noqa: ASYNC110  # only the client's memory tells when they arrived
            await asyncio.sleep(0)
        assert (await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/small"))).body == b"hi"
        assert not any(task.done() for task in pages)
        pages[0].cancel()
        await asyncio.gather(pages[0], return_exceptions=True)
        assert client.bodies_in_flight_bytes == size
        budget.release(1)
        assert len((await pages[1]).body) == size
        await client.close()
        assert client.bodies_in_flight_bytes == 0


PIECES = st.one_of(st.binary(min_size=1, max_size=60), st.sampled_from([HI, HI[:20], HI[20:], b"\r\n\r\n"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(PIECES, max_size=5))
def test_any_bytes_on_a_real_socket(pieces: list[bytes]) -> None:
    """Three requests to a server that answers with noise: an answer or a FetchError each, and nothing left behind."""

    async def main() -> None:
        script: list[Step] = [b"HTTP/1.1 200 OK\r\n", *pieces]
        limits = ResponseLimits(header_bytes=200, body_bytes=50)
        async with serving(script, limits=limits, timeouts=Timeouts(30, 30, 30, 60)) as (client, _, exchange):
            for _ in range(3):
                try:
                    assert len((await client.fetch(exchange)).body) <= 50
                except FetchError:
                    continue

    asyncio.run(main())
