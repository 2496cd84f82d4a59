"""Who may use the API, and how much of it."""

import asyncio
import re
import socket
from contextlib import suppress

import httpx
import pytest

from gossamer.api.access import OPEN_PATHS
from gossamer.api.app import create_probes, routes
from gossamer.api.server import serve_api, serve_probes
from gossamer.errors import BadInput
from gossamer.web.rates import GuessLimit, TokenBuckets, client_of

from .conftest import Service, Start, in_session

TOKEN = "a long wörd nobody guesses"
PROBLEM = "application/problem+json"
EVERYWHERE = ["/v1/crawls", "/v1/domains", "/v1/workers", "/metrics", "/readyz", "/v1/nothing"]


async def test_without_the_token_only_health_and_documentation_answer(start: Start) -> None:
    async with start(token=TOKEN) as service:
        for given in (None, "", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"):
            headers = {} if given is None else {"Authorization": given.encode()}
            for path in EVERYWHERE:
                answer = await service.http.get(path, headers=headers)
                assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
                assert answer.headers["www-authenticate"].startswith("Bearer")
            classic = await service.http.post("/feed", json={}, headers=headers)
            assert (classic.status_code, classic.json()["status"]) == (401, "FAILURE")
        for path in ("/healthz", "/docs", "/openapi.json"):
            assert (await service.http.get(path)).status_code == 200


async def test_no_endpoint_answers_without_the_token(start: Start) -> None:
    """Every endpoint of the description, so that one that is added is tried, too."""
    async with start(token=TOKEN, max_requests_per_second=1e6) as service:
        answered = []
        for path, methods in routes().openapi()["paths"].items():
            if path in OPEN_PATHS:
                continue
            address = re.sub(r"\{[^}]*\}", "x", path)
            for method in methods:
                for headers in ({}, {"Authorization": "Bearer wrong"}):
                    answer = await service.http.request(method, address, headers=headers)
                    if answer.status_code != 401:
                        answered.append((method, path, answer.status_code))
        assert answered == []


async def test_with_the_token_everything_answers_whatever_the_host(start: Start) -> None:
    async with start(
        token=TOKEN, headers={"Authorization": f"bearer {TOKEN}".encode(), "Host": "api.example"}
    ) as service:
        assert (await service.http.get("/v1/crawls")).status_code == 200
        assert (await service.http.get("/")).json()["node_health"] == "GREEN"


@in_session
@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Host": "evil.example:5343"}, {"Origin": "https://evil.example"}, {"Origin": "null"}],
)
async def test_without_a_token_web_pages_get_nothing(shared: Service, headers: dict[str, str]) -> None:
    for method, path in (("GET", "/v1/crawls"), ("POST", "/feed")):
        answer = await shared.http.request(method, path, headers=headers)
        assert answer.status_code == 403
    port = shared.http.base_url.port
    assert (await shared.http.get("/v1/crawls", headers={"Host": f"localhost:{port}"})).status_code == 200


@in_session
@pytest.mark.parametrize(
    "lines",
    [
        "HTTP/1.0",
        "HTTP/1.1\nHost:",
        "HTTP/1.1\nHost: evil.example@127.0.0.1",
        "HTTP/1.1\nHost: evil.example@localhost:5343",
        "HTTP/1.1\nHost: a.localhost",
        "HTTP/1.1\nHost: localhost:x",
        "HTTP/1.1\nHost: localhost\nSec-Fetch-Site: cross-site",
        "HTTP/1.1\nHost: localhost\nOrigin: http://x@localhost",
    ],
)
async def test_without_a_token_only_this_machine_is_a_host(shared: Service, lines: str) -> None:
    """`tests/unit/web/test_access.py` has all cases."""
    answer = await ask(shared, f"POST /v1/crawls {lines}\nContent-Length: 0\n\n")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"set service.token" in answer


@in_session
@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.0.2.1", "a.example"])
async def test_an_open_address_needs_a_token(shared: Service, host: str) -> None:
    with pytest.raises(BadInput, match=r"service\.token"):
        await serve_api(shared.app, host=host, port=0, stopping=asyncio.Event(), ready=lambda _: None)


async def test_a_scraper_without_the_token_has_a_port_of_its_own(start: Start) -> None:
    async with start(token=TOKEN) as service:
        stopping, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve_probes(create_probes(service.context), address="0.0.0.0:0", stopping=stopping, ready=ready.set_result)
        )
        port = httpx.URL(await ready).port
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http:
            assert (await http.get("/metrics")).text.startswith("# HELP gossamer_")
            assert (await http.get("/readyz")).json()["status"] == "ready"
            assert (await http.get("/healthz")).json() == {"status": "ok"}
            for path in ("/", "/feed", "/v1/crawls", "/docs", "/openapi.json"):
                assert (await http.get(path)).status_code in (404, 405)
        stopping.set()
        await serving


@in_session
async def test_an_address_that_is_none_is_refused(shared: Service) -> None:
    with pytest.raises(BadInput, match="ADDRESS:PORT"):
        await serve_probes(create_probes(shared.context), address="9091", stopping=asyncio.Event(), ready=print)


@in_session
async def test_a_port_that_is_taken_is_said(shared: Service) -> None:
    port = shared.http.base_url.port
    assert port is not None
    with pytest.raises(BadInput, match="in use"):
        await serve_api(shared.app, host="127.0.0.1", port=port, stopping=asyncio.Event(), ready=lambda _: None)


async def test_a_name_is_served_at_all_its_addresses(start: Start) -> None:
    async with start() as service:
        stopping, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(
            serve_api(service.app, host="localhost", port=0, stopping=stopping, ready=ready.set_result)
        )
        address = httpx.URL(await ready)
        for host in {info[4][0] for info in socket.getaddrinfo("localhost", 0)}:
            with suppress(OSError):  # a machine may have a name for an address it has not
                socket.create_connection((host, address.port)).close()
        async with httpx.AsyncClient(verify=False) as http:
            assert (await http.get(f"{address}/healthz")).status_code == 200
        stopping.set()
        await serving


# --- bodies -----------------------------------------------------------------------------------------------------------


async def ask(service: Service, head: str, *parts: bytes) -> bytes:
    """The whole answer that a plain socket gets; the client closes the connection then."""
    reader, writer = await asyncio.open_connection("127.0.0.1", service.http.base_url.port)
    try:
        writer.write(head.replace("\n", "\r\n").encode())
        for part in parts:
            writer.write(part)
            await writer.drain()
        found = await reader.readuntil(b"\r\n\r\n")
        length = int(found.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        return found + await reader.readexactly(length)
    finally:
        writer.close()


@in_session
@pytest.mark.parametrize("path", ["/feed", "/v1/crawls"])
async def test_a_large_body_is_refused_before_it_is_sent(shared: Service, path: str) -> None:
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Length: 10485760\n\n"
    answer = await ask(shared, head)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"service.max_body" in answer


@in_session
async def test_a_large_body_without_a_length_is_refused_where_it_exceeds(shared: Service) -> None:
    head = "POST /v1/crawls HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n"
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    answer = await ask(shared, head, *[chunk] * 17)
    assert answer.startswith(b"HTTP/1.1 413 ")


@in_session
async def test_a_client_that_sends_it_all_still_gets_the_answer(shared: Service) -> None:
    for path in ("/feed", "/v1/crawls", "/v1/domains"):
        method = "PUT" if path == "/v1/domains" else "POST"
        answer = await shared.http.request(method, path, content=b"x" * 10_000_000, headers={"If-Match": "*"})
        assert answer.status_code == 413


async def test_a_body_that_does_not_come_is_given_up(start: Start) -> None:
    async with start(body_timeout_seconds=0.05) as service:
        head = "POST /v1/crawls HTTP/1.1\nHost: localhost\nContent-Length: 9\n\n"
        assert (await ask(service, head)).startswith(b"HTTP/1.1 408 ")


@in_session
async def test_endless_headers_are_cut_off(shared: Service) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", shared.http.base_url.port)
    with suppress(ConnectionError):  # it may be closed while we still send
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000)
        await writer.drain()
        assert b" 200 " not in await reader.read()
    writer.close()


# --- rate -------------------------------------------------------------------------------------------------------------


async def test_more_than_the_burst_is_told_when_to_come_again(start: Start) -> None:
    now = 1000.0
    async with start(max_requests_per_second=2.0, monotonic=lambda: now) as service:
        answers = [await service.http.get("/v1/queues") for _ in range(5)]
        assert [answer.status_code for answer in answers] == [200] * 4 + [429]
        assert answers[-1].headers["retry-after"] == "1"
        assert answers[-1].headers["content-type"] == PROBLEM
        now += 0.5
        assert (await service.http.get("/v1/queues")).status_code == 200
        assert (await service.http.post("/feed", json={})).status_code == 429


async def test_guesses_of_the_token_are_slowed_down(start: Start) -> None:
    """At the API and at the dashboard together; while a client guesses, the right token does not tell itself."""
    now = 1000.0
    guesses = GuessLimit(monotonic=lambda: now)
    async with start(token=TOKEN, guesses=guesses, max_requests_per_second=1e6) as service:

        async def ask(token: str) -> httpx.Response:
            return await service.http.get("/v1/queues", headers={"Authorization": f"Bearer {token}".encode()})

        async def log_in(token: str) -> int:
            return (await service.http.post("/ui/login", data={"token": token})).status_code

        for _ in range(100):
            assert (await ask("wrong")).status_code == 401
            assert await log_in("wrong") == 403
        refused = await ask("wrong")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert (await ask(TOKEN)).status_code == await log_in(TOKEN) == 429
        assert (await service.http.get("/v1/queues")).status_code == 401
        now += 1
        assert (await ask(TOKEN)).status_code == 200
        assert await log_in(TOKEN) == 303


def test_clients_have_a_bucket_each_and_memory_is_bounded() -> None:
    now = 0.0
    buckets = TokenBuckets(1.0, monotonic=lambda: now, max_clients=3)
    assert [buckets.take("a") for _ in range(3)] == [0, 0, 1]
    assert buckets.take("b") == 0
    for n in range(100):
        buckets.take(str(n))
    assert len(buckets) == 3


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::"),
    ],
)
def test_one_customers_addresses_are_one_client(address: str, client: str) -> None:
    assert client_of(address) == client
