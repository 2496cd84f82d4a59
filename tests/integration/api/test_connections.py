"""Connections that are slow, idle or many keep nobody else from the API."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from ipaddress import ip_network

import httpx

from gossamer.web.connections import ConnectionLimits
from gossamer.web.streams import MAX_STREAMS

from .conftest import Service, Start

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

CRAWL = {"appid": "shop", "crawlid": "prices", "url": "https://example.com/"}
EVENTS = b"GET /v1/crawls/shop/prices/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNFINISHED = b"POST /v1/crawls HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


@asynccontextmanager
async def opened(
    service: Service, count: int, *, address: str = "127.0.0.1", send: bytes = b""
) -> AsyncIterator[list[Streams]]:
    """Connections from one address that send this much and then nothing."""
    port = service.http.base_url.port
    streams = [await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)) for _ in range(count)]
    try:
        for _, writer in streams:
            writer.write(send)
        yield streams
    finally:
        for _, writer in streams:
            writer.close()


async def status(streams: Streams) -> int:
    """The status of the next response."""
    line = await streams[0].readline()
    return int(line.split()[1])


async def ask(service: Service, path: str, *, address: str = "127.0.0.1") -> httpx.Response:
    """The answer to a request on a connection of its own."""
    transport = httpx.AsyncHTTPTransport(local_address=address)
    async with httpx.AsyncClient(transport=transport, base_url=service.http.base_url, timeout=60) as http:
        return await http.get(path)


async def until_busy(service: Service, *, address: str = "127.0.0.1") -> None:
    """Wait until so many requests are under way that another one is refused."""
    async with asyncio.timeout(60):
        while (await ask(service, "/v1/crawls", address=address)).status_code != 503:
            pass


async def are_closed(streams: list[Streams]) -> None:
    """Wait until the server has closed these connections."""
    async with asyncio.timeout(60):
        for reader, _ in streams:
            with suppress(ConnectionError):
                await reader.read()


def closed(service: Service, reason: str) -> float:
    """How many connections were closed for this reason."""
    return service.context.metrics.http_closed.labels(reason)._value.get()


async def test_a_thousand_idle_connections_keep_nobody_out(start: Start) -> None:
    async with start(token="secret") as service, opened(service, 1000):
        for address in ("127.0.0.1", "127.0.0.2"):
            assert (await ask(service, "/healthz", address=address)).status_code == 200
            assert (await ask(service, "/v1/crawls", address=address)).status_code == 401


async def test_idle_connections_of_many_addresses_keep_nobody_out(start: Start) -> None:
    limits = ConnectionLimits(total=64, per_client=16)
    async with start(connections=limits) as service, AsyncExitStack() as stack:
        for last in range(2, 12):
            await stack.enter_async_context(opened(service, 16, address=f"127.0.0.{last}"))
        assert (await ask(service, "/v1/crawls")).status_code == 200


async def test_a_limit_of_one_connection_lets_one_request_run(start: Start) -> None:
    async with start(connections=ConnectionLimits(total=1, per_client=1)) as service:
        assert (await ask(service, "/v1/crawls")).status_code == 200


async def test_a_connection_that_sends_nothing_is_closed(start: Start) -> None:
    async with start(connections=ConnectionLimits(first_byte=0.1)) as service, opened(service, 20) as idle:
        await are_closed(idle)
        assert closed(service, "first_byte") == 20


async def test_headers_that_come_a_byte_at_a_time_are_given_up(start: Start) -> None:
    async with start(connections=ConnectionLimits(head=0.3)) as service:
        async with opened(service, 1, send=b"GET /healthz HTTP/1.1\r\nX: ") as [(reader, writer)]:
            await drip(reader, writer)
        assert closed(service, "head") == 1


async def test_a_body_that_comes_a_byte_at_a_time_is_answered_and_given_up(start: Start) -> None:
    async with start(body_timeout_seconds=0.3) as service, opened(service, 1, send=UNFINISHED) as [(reader, writer)]:
        assert b" 408 " in await drip(reader, writer)


async def test_a_body_after_its_refusal_does_not_keep_the_connection(start: Start) -> None:
    for head in (UNFINISHED, HEALTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 100\r\n\r\n")):
        async with start(token="secret", connections=ConnectionLimits(body=0.3)) as service:
            async with opened(service, 1, send=head) as [(reader, writer)]:
                assert (await drip(reader, writer)).startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 200 "))
            assert closed(service, "body") == 1


async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Send a byte now and then until the server closes the connection; what it answered."""
    found = b""
    async with asyncio.timeout(60):
        while True:
            with suppress(ConnectionError):
                writer.write(b"x")
            try:
                async with asyncio.timeout(0.02):
                    got = await reader.read(65536)
            except TimeoutError:
                continue
            except ConnectionError:
                return found
            if not got:
                return found
            found += got


async def test_a_client_that_reads_nothing_is_let_go(start: Start) -> None:
    async with start(connections=ConnectionLimits(unread=0.2)) as service:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", service.http.base_url.port))
        sock.setblocking(False)
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
        with suppress(ConnectionError):
            async with asyncio.timeout(60):
                while not closed(service, "unread"):
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.02):
                            await asyncio.get_running_loop().sock_sendall(sock, request * 50)
        sock.close()
        assert closed(service, "unread") == 1


async def test_a_client_at_its_limit_is_refused_but_for_its_health_check(start: Start) -> None:
    async with start(connections=ConnectionLimits(per_client=16)) as service:
        async with opened(service, 14, send=UNFINISHED):
            await until_busy(service)
            refused = await ask(service, "/v1/crawls")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert refused.headers["connection"] == "close"
            async with opened(service, 30):
                assert (await ask(service, "/healthz")).status_code == 200
            assert (await ask(service, "/v1/crawls", address="127.0.0.2")).status_code == 200
        async with asyncio.timeout(60):
            while (await ask(service, "/v1/crawls")).status_code != 200:
                pass


async def test_at_the_cap_of_all_connections_requests_are_refused_and_health_checks_answered(start: Start) -> None:
    async with start(connections=ConnectionLimits(total=16, per_client=16)) as service, AsyncExitStack() as stack:
        for last in range(2, 9):
            await stack.enter_async_context(opened(service, 2, address=f"127.0.0.{last}", send=UNFINISHED))
        await until_busy(service, address="127.0.0.9")
        await stack.enter_async_context(opened(service, 30, address="127.0.0.10"))
        refused = await ask(service, "/v1/crawls", address="127.0.0.9")
        assert (refused.status_code, refused.headers["connection"]) == (503, "close")
        assert (await ask(service, "/healthz", address="127.0.0.9")).status_code == 200
        assert closed(service, "busy") >= 2
        assert closed(service, "crowded") >= 14  # idle ones made room


async def test_a_health_check_is_not_counted_against_the_rate(start: Start) -> None:
    async with start(max_requests_per_second=1.0, monotonic=lambda: 1000.0) as service:
        answers = [await service.http.get("/v1/queues") for _ in range(3)]
        assert answers[-1].status_code == 429
        assert [(await service.http.get("/healthz")).status_code for _ in range(9)] == [200] * 9


async def test_event_streams_have_a_limit_of_their_own(start: Start) -> None:
    async with start(connections=ConnectionLimits(total=32, per_client=16)) as service:
        await service.feed(CRAWL)
        async with AsyncExitStack() as stack:
            codes = []
            for _ in range(MAX_STREAMS // 10 + 1):  # so many at once that all find a place before they are streams
                some = await stack.enter_async_context(opened(service, 10, send=EVENTS))
                codes += [await status(one) for one in some]
            assert (codes.count(200), codes.count(503)) == (MAX_STREAMS, 10)
            assert (await ask(service, "/v1/crawls")).status_code == 200
            async with opened(service, 40):
                assert (await ask(service, "/healthz")).status_code == 200


async def test_connections_whose_streams_have_ended_are_counted_again(start: Start) -> None:
    async with start(connections=ConnectionLimits(per_client=16)) as service:
        await service.feed(CRAWL)
        async with opened(service, 14, address="127.0.0.2", send=EVENTS) as streams:
            assert [await status(one) for one in streams] == [200] * 14
            assert (await service.http.delete("/v1/crawls/shop/prices")).is_success
            for reader, _ in streams:
                await reader.readuntil(b"\r\n0\r\n\r\n")
            async with opened(service, 4, address="127.0.0.2"), asyncio.timeout(60):
                while not closed(service, "crowded"):
                    await ask(service, "/healthz", address="127.0.0.2")


async def test_streams_that_begin_at_once_do_not_exceed_their_limit(start: Start) -> None:
    async with start(connections=ConnectionLimits(per_client=1000)) as service:
        await service.feed(CRAWL)
        async with opened(service, MAX_STREAMS + 50, send=EVENTS) as all_at_once:
            codes = await asyncio.gather(*map(status, all_at_once))
            assert (codes.count(200), codes.count(503)) == (MAX_STREAMS, 50)


# --- proxies ----------------------------------------------------------------------------------------------------------


async def queues(service: Service, forwarded: str) -> int:
    return (await service.http.get("/v1/queues", headers={"X-Forwarded-For": forwarded})).status_code


async def test_behind_a_trusted_proxy_the_rate_counts_the_client_that_it_names(start: Start) -> None:
    trusted = ConnectionLimits(trusted_proxies=[ip_network("127.0.0.0/8"), ip_network("10.0.0.0/8")])
    token = {"token": "secret", "headers": {"Authorization": "Bearer secret"}}
    async with start(max_requests_per_second=1.0, monotonic=lambda: 1000.0, connections=trusted, **token) as service:
        assert [await queues(service, "192.0.2.1") for _ in range(3)] == [200, 200, 429]
        assert await queues(service, "192.0.2.2, 10.0.0.1") == 200
        # What stands before the last address that is not a proxy's was written by the client.
        assert await queues(service, "192.0.2.3, 192.0.2.1") == 429


async def test_without_a_token_a_trusted_proxy_lets_only_clients_of_this_machine_in(start: Start) -> None:
    trusted = ConnectionLimits(trusted_proxies=[ip_network("127.0.0.1")])
    async with start(connections=trusted) as service:
        assert [await queues(service, client) for client in ("192.0.2.1", "127.0.0.2")] == [403, 200]


async def test_nobody_else_names_a_client(start: Start) -> None:
    trusted = ConnectionLimits(trusted_proxies=[ip_network("10.0.0.0/8")])
    token = {"token": "secret", "headers": {"Authorization": "Bearer secret"}}
    async with start(max_requests_per_second=1.0, monotonic=lambda: 1000.0, connections=trusted, **token) as service:
        assert [await queues(service, f"192.0.2.{n}") for n in range(3)] == [200, 200, 429]


async def test_a_trusted_proxy_is_not_held_to_one_clients_connections(start: Start) -> None:
    trusted = ConnectionLimits(per_client=16, trusted_proxies=[ip_network("127.0.0.1")])
    async with start(connections=trusted) as service, opened(service, 50, send=UNFINISHED):
        assert (await ask(service, "/v1/crawls")).status_code == 200
        assert closed(service, "crowded") == closed(service, "busy") == 0
