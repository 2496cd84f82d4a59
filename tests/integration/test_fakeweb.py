"""The fake web as its visitors meet it: over sockets, with and without TLS, in this process and in another."""

import asyncio
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import urldefrag, urljoin, urlsplit

import pytest
from selectolax.lexbor import LexborHTMLParser

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb import (
    Answer,
    Ending,
    FakeWeb,
    Fate,
    How,
    Mounts,
    Robots,
    Server,
    SitePage,
    WebSpec,
    html,
    plain,
    redirect,
    serve,
)
from gossamer_fakeweb import Ends, expected, fetched, fetches, max_concurrency, repeated
from gossamer_fakeweb import log as log_reading

SPEC = WebSpec(hosts=3, pages=60, out_degree=6, page_bytes=4_000, subdomains=2)


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC) as web:
        yield web


@pytest.fixture
async def here() -> AsyncIterator[Server]:
    async with serve(SPEC) as web:
        yield web


def request(host: str, path: str, *, method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: raw\r\n{more}\r\n".encode()


def talk(port: int, sent: bytes) -> tuple[bytes, BaseException | None]:
    """Everything that comes back until the connection ends, and how it ended if badly."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connected:
        connected.sendall(sent)
        while True:
            try:
                part = connected.recv(65536)
            except ConnectionError as error:
                return received, error
            if not part:
                return received, None
            received += part


def ask(web: FakeWeb | Server, url: str, *, method: str = "GET", body: bytes | None = None) -> http.client.HTTPResponse:
    """One request on a connection of its own. The body has been read: `response.content`."""
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)) as connection:
        connection.request(
            method, parts.path + ("?" + parts.query if parts.query else ""), body, {"Host": parts.netloc}
        )
        response = connection.getresponse()
        response.content = response.read()  # type: ignore[attr-defined]
        return response


def content(response: http.client.HTTPResponse) -> bytes:
    return response.content  # type: ignore[attr-defined, no-any-return]


def page_with(web: FakeWeb | Server, fate: Fate) -> str:
    return next(web.url(0, number) for number in range(web.spec.pages) if web.site.fate(SitePage(0, number)) is fate)


def crawl(web: FakeWeb) -> dict[str, int | None]:
    """A small crawler that does everything right: URL -> the last status, None where robots.txt forbade it."""
    seen = set(web.seeds())
    waiting = list(seen)
    ended: dict[str, int | None] = {}
    while waiting:
        url = first = waiting.pop()
        attempts = 0
        while True:
            parts = urlsplit(url)
            host = web.site.host_number(parts.hostname or "")
            assert host is not None
            if not web.site.allowed(host, parts.path):
                ended[first] = None
                break
            try:
                response = ask(web, url)
            except (ConnectionError, http.client.IncompleteRead):
                attempts += 1
                if attempts == 2:
                    ended[first] = 0
                    break
                continue
            if response.status in (429, 500, 503) and not attempts:
                attempts += 1
                continue
            location = response.getheader("Location")
            if location:
                url = urljoin(url, location)
                continue
            ended[first] = response.status
            if response.status == 200:
                for node in LexborHTMLParser(content(response)).css("a[href]"):
                    link = urldefrag(urljoin(url, node.attributes["href"] or "")).url
                    if link not in seen:
                        seen.add(link)
                        waiting.append(link)
            break
    return ended


# --- the oracle -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("errors_once", [False, True])
def test_a_correct_crawler_finds_what_is_expected_and_the_log_shows_it(errors_once: bool) -> None:
    spec = WebSpec(
        hosts=4,
        pages=80,
        out_degree=5,
        page_bytes=3_000,
        cross_host_share=0.2,
        refuse=0.04,
        reset=0.04,
        not_found=0.04,
        rate_limited=0.04,
        server_error=0.04,
        unavailable=0.04,
        redirect_same=0.1,
        redirect_cross=0.1,
        redirect_chain=2,
        robots=(Robots.DISALLOW, Robots.ALLOW, Robots.NONE),
        errors_once=errors_once,
    )
    with FakeWeb.start(spec) as web:
        outcome = expected(web.site)
        assert {result.ends for result in outcome.values()} == {Ends.PAGE, Ends.FAILED, Ends.DROPPED}
        ended = crawl(web)
        records = web.log()
    assert {
        url: Ends.DROPPED if status is None else Ends.PAGE if status == 200 else Ends.FAILED
        for url, status in ended.items()
    } == {url: result.ends for url, result in outcome.items()}
    assert set(fetches(records)) == fetched(outcome)
    assert repeated(records) == {}
    healing = {url for url, result in outcome.items() if result.heals}
    assert bool(healing) is errors_once
    assert all(fetches(records)[url] == 2 for url in healing)


def test_the_log_knows_how_much_was_asked_for_at_once() -> None:
    """Several pages that stall at the same time are that many at once; nothing else is."""
    with FakeWeb.start(WebSpec(hosts=2, pages=10, stall=1.0)) as web:
        stalled = [socket.create_connection(("127.0.0.1", web.port), timeout=60) for _ in range(5)]
        for number, connected in enumerate(stalled):
            connected.sendall(request("site0.test", f"/p/{number + 1}"))
            assert connected.recv(12) == b"HTTP/1.1 200"
        assert max_concurrency(web.log(), "site0.test") == 5
        for connected in stalled:
            connected.close()
        for _ in range(3):
            ask(web, web.url(1))
        assert max_concurrency(web.log(), "site1.test") == 1


def test_a_reset_forgets_the_log_and_heals_nothing_for_good() -> None:
    with FakeWeb.start(WebSpec(hosts=1, pages=5, server_error=1.0, errors_once=True)) as web:
        for _ in range(2):
            assert [ask(web, web.url(0, 1)).status for _ in range(3)] == [500, 200, 200]
            assert [record.status for record in web.log()] == [500, 200, 200]
            assert web.stats().requests == 3
            web.reset()
            assert web.log() == []


def test_a_long_log_arrives_whole_and_in_order(web: FakeWeb) -> None:
    web.reset()
    paths = [f"/none/{number}" for number in range(10_500)]  # more than one answer holds
    sent = b"".join(request("h0.site0.test", path, method="HEAD") for path in paths)
    talk(web.port, sent + request("h0.site0.test", "/", more="Connection: close\r\n"))
    assert [record.path for record in web.log()] == [*paths, "/"]
    assert [json.loads(ask_control(web, f"/log?from={at}&limit=1"))["path"] for at in (7, 10_500)] == ["/none/7", "/"]


def ask_control(web: FakeWeb, target: str) -> bytes:
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=60)) as connection:
        connection.request("GET", target, headers={"Host": "_fakeweb.test"})
        return connection.getresponse().read()


# --- what a raw socket sees -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def failing() -> Iterator[FakeWeb]:
    rate = 1 / 7
    spec = WebSpec(
        hosts=1,
        pages=200,
        refuse=rate,
        reset=rate,
        stall=rate,
        not_found=rate,
        rate_limited=rate,
        server_error=rate,
        unavailable=rate - 1e-6,
        retry_after_seconds=17,
    )
    with FakeWeb.start(spec) as web:
        yield web


def test_refuse_resets_before_a_byte_is_answered(failing: FakeWeb) -> None:
    failing.reset()
    received, error = talk(failing.port, request("site0.test", urlsplit(page_with(failing, Fate.REFUSE)).path))
    assert received == b""
    assert isinstance(error, ConnectionResetError)
    assert [(record.status, record.how) for record in failing.log()] == [(0, How.REFUSE)]


def test_reset_ends_in_the_middle_of_the_body(failing: FakeWeb) -> None:
    failing.reset()
    received, error = talk(failing.port, request("site0.test", urlsplit(page_with(failing, Fate.RESET)).path))
    assert isinstance(error, ConnectionResetError)
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"Content-Length: 12000" in head
    assert len(body) == 6000
    assert [(record.status, record.how) for record in failing.log()] == [(200, How.RESET)]


async def test_stall_sends_headers_and_waits_for_the_client_to_leave() -> None:
    async with serve(WebSpec(pages=5, stall=1.0)) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(request("site0.test", "/p/1"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"Content-Length: 12000" in head
        assert [(record.how, record.ended) for record in web.log()] == [(How.OPEN, None)]
        writer.close()
        await writer.wait_closed()
        await web.idle.wait()
        record = web.log()[0]
        assert record.how is How.STALL
        assert record.ended is not None
        assert record.ended > record.started


@pytest.mark.parametrize(
    ("fate", "status"),
    [(Fate.NOT_FOUND, 404), (Fate.RATE_LIMITED, 429), (Fate.SERVER_ERROR, 500), (Fate.UNAVAILABLE, 503)],
)
def test_error_pages_have_their_status(failing: FakeWeb, fate: Fate, status: int) -> None:
    response = ask(failing, page_with(failing, fate))
    assert response.status == status
    assert response.getheader("Retry-After") == ("17" if status in (429, 503) else None)


def test_many_requests_on_one_connection_are_answered_in_order(web: FakeWeb) -> None:
    web.reset()
    paths = ["/", *(f"/p/{number}" for number in range(1, 60))]
    sent = b"".join(request("h0.site0.test", path) for path in paths)
    received, error = talk(web.port, sent + request("h1.site0.test", "/p/3", more="Connection: close\r\n"))
    assert error is None
    titles = [part.partition(b"</title>")[0] for part in received.split(b"<title>")[1:]]
    assert titles == [f"Page {n} of h0.site0.test".encode() for n in range(60)] + [b"Page 3 of h1.site0.test"]
    records = web.log()
    assert [record.path for record in records] == [*paths, "/p/3"]
    assert len({record.connection for record in records}) == 1
    assert max_concurrency(records, "site0.test") == 1


def test_pipelined_requests_wait_for_slow_answers_in_order() -> None:
    with FakeWeb.start(WebSpec(pages=60, latency_ms=1.0)) as web:
        sent = b"".join(request("site0.test", f"/p/{number}") for number in range(1, 59))
        received, _ = talk(web.port, sent + request("site0.test", "/p/59", more="Connection: close\r\n"))
        assert received.count(b"HTTP/1.1 200 OK") == 59
        assert max_concurrency(web.log(), "site0.test") == 1


def test_a_request_in_pieces_is_a_request(web: FakeWeb) -> None:
    sent = request("h0.site0.test", "/p/12", more="Connection: close\r\n")
    with socket.create_connection(("127.0.0.1", web.port), timeout=60) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(len(sent)):
            connected.sendall(sent[at : at + 1])
        received = b""
        while part := connected.recv(65536):
            received += part
    assert b"<title>Page 12 of h0.site0.test</title>" in received


def test_head_has_the_headers_only(web: FakeWeb) -> None:
    received, _ = talk(
        web.port,
        request("h0.site0.test", "/p/1", method="HEAD")
        + request("h0.site0.test", "/p/1", more="Connection: close\r\n"),
    )
    assert received.count(b"Content-Length: 4000\r\n") == 2
    assert received.count(b"<title>") == 1


def test_post_is_read_and_answered(web: FakeWeb) -> None:
    web.reset()
    response = ask(web, web.url(0, 1), method="POST", body=b"x" * 300_000)
    assert (response.status, len(content(response))) == (200, 4000)
    assert [record.method for record in web.log()] == ["POST"]


def test_the_absolute_form_names_the_host(web: FakeWeb) -> None:
    received, _ = talk(web.port, request("elsewhere.test", "http://H1.site0.test:1/p/2", more="Connection: close\r\n"))
    assert b"<title>Page 2 of h1.site0.test</title>" in received


def test_http_1_0_connections_are_closed(web: FakeWeb) -> None:
    received, error = talk(web.port, b"GET / HTTP/1.0\r\nHost: h0.site0.test\r\n\r\n")
    assert error is None
    assert b"Connection: close\r\n" in received


@pytest.mark.parametrize(
    "nonsense", [b"hello\r\n\r\n", b"\x16\x03\x01\x00\xa5\x01", b"GET / HTTP/1.1\r\nbad header\r\n\r\n", b"\0" * 99]
)
def test_what_is_not_http_is_told_so(web: FakeWeb, nonsense: bytes) -> None:
    received, _ = talk(web.port, nonsense)
    assert received.startswith(b"HTTP/1.1 400 ")
    assert ask(web, web.url()).status == 200


def test_connect_is_not_for_a_web_server(web: FakeWeb) -> None:
    received, _ = talk(web.port, b"CONNECT h0.site0.test:80 HTTP/1.1\r\nHost: h0.site0.test:80\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 4")


def test_a_host_without_a_site_is_told_so(web: FakeWeb) -> None:
    received, _ = talk(web.port, request("nobody.example", "/", more="Connection: close\r\n"))
    assert received.startswith(b"HTTP/1.1 421 ")


def test_connections_end_after_each_answer_when_asked() -> None:
    with FakeWeb.start(WebSpec(pages=5, keep_alive=False)) as web:
        received, error = talk(web.port, request("site0.test", "/p/1"))
        assert error is None
        assert b"Connection: close\r\n" in received
        assert received.endswith(b"</html>\n")


async def test_an_answer_larger_than_the_kernels_buffers_ends_when_it_is_read() -> None:
    async with serve(WebSpec(pages=2, page_bytes=16 * 1024 * 1024)) as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port, limit=1024)
        writer.write(request("site0.test", "/p/1"))
        await reader.readuntil(b"\r\n\r\n")
        assert web.log()[0].how is How.OPEN
        await reader.readexactly(16 * 1024 * 1024)
        assert web.log()[0].how is How.WHOLE
        writer.close()
        await writer.wait_closed()


async def test_a_client_that_leaves_before_the_answer_is_noted(here: Server) -> None:
    here.mount("slow.test", "/", Answer(delay_ms=600_000))
    reader, writer = await asyncio.open_connection("127.0.0.1", here.port)
    writer.write(request("h0.site0.test", "/") + request("slow.test", "/"))
    await reader.readuntil(b"</html>\n")  # the server has taken both requests in one piece
    writer.close()
    await writer.wait_closed()
    await here.idle.wait()
    assert [record.how for record in here.log()] == [How.WHOLE, How.LEFT]


async def test_what_is_open_at_the_end_is_in_the_log_file(tmp_path: Path) -> None:
    async with serve(WebSpec(pages=5, stall=1.0), log_file=tmp_path / "log") as web:
        reader, writer = await asyncio.open_connection("127.0.0.1", web.port)
        writer.write(request("site0.test", "/p/1"))
        await reader.readuntil(b"\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()
    assert [record.how for record in log_reading.read(tmp_path / "log")] == [How.STALL]


# --- handmade pages -------------------------------------------------------------------------------------------------


async def test_handmade_pages_stand_beside_generated_ones() -> None:
    mounts: Mounts = {
        ("a.test", "/"): redirect("/b?x=1", status=308),
        ("a.test", "/b?x=1"): html("<p>here</p>", headers=(("X-Mine", "yes"),)),
        ("a.test", "/robots.txt"): plain("User-agent: *\nDisallow: /b\n"),
        ("a.test", "/flaky"): (plain("no", status=503), plain("yes")),
        ("a.test", "/cut"): Answer(body=b"x" * 100, ending=Ending.CUT),
        ("a.test", "/raw"): Answer(body=b"HTTP/1.1 200 Fine\r\n\r\nuntil the end", raw=True),
        ("a.test", "/none"): Answer(status=204),
    }
    async with serve(SPEC, mounts=mounts) as web:

        def visit() -> None:
            first = ask(web, web.url("a.test", "/"))
            assert (first.status, first.getheader("Location")) == (308, "/b?x=1")
            second = ask(web, web.url("a.test", "/b?x=1"))
            assert (content(second), second.getheader("X-Mine")) == (b"<p>here</p>", "yes")
            assert content(ask(web, web.url("a.test", "/robots.txt"))).endswith(b"Disallow: /b\n")
            assert [ask(web, web.url("a.test", "/flaky")).status for _ in range(3)] == [503, 200, 200]
            with pytest.raises(http.client.IncompleteRead):
                ask(web, web.url("a.test", "/cut"))
            assert content(ask(web, web.url("a.test", "/raw"))) == b"until the end"
            assert ask(web, web.url("a.test", "/none")).getheader("Content-Length") is None
            assert ask(web, web.url("a.test", "/other")).status == 404
            assert ask(web, web.url()).status == 200

        await asyncio.to_thread(visit)
        assert "a.test:127.0.0.1" in web.resolve_overrides()
        assert fetches(web.log())[web.url("a.test", "/flaky")] == 3


def test_pages_can_be_mounted_in_the_other_process(web: FakeWeb) -> None:
    body = bytes(range(256)) * 100
    web.mount("b.test", "/binary", [Answer(body=body), Answer(status=500)])
    assert content(ask(web, web.url("b.test", "/binary"))) == body
    assert ask(web, web.url("b.test", "/binary")).status == 500
    assert "b.test:127.0.0.1" in web.resolve_overrides()
    with pytest.raises(FakeWebFailed, match="needs an answer"):
        web.mount("b.test", "/", [])
    with pytest.raises(FakeWebFailed, match="latin-1"):
        web.mount("b.test", "/", Answer(headers=(("X-Spider", "蜘蛛"),)))
