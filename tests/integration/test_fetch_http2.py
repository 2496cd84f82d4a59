"""HTTP/2: with a real server and with servers that say odd things; the choice between the versions."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from h2.errors import ErrorCodes

from gossamer.errors import (
    BadResponse,
    ConnectionLost,
    FetchError,
    FirstByteTimeout,
    HeadersTooLarge,
    Http2Needed,
    TlsFailed,
)
from gossamer.fakeweb import WebSpec, redirect, serve
from gossamer.fetch import http_versions
from gossamer.fetch.budget import ByteBudget
from gossamer.fetch.client import HttpClient, PoolLimits
from gossamer.fetch.exchange import FetchRequest, FetchResponse, ResponseLimits, Timeouts
from gossamer.fetch.http_versions import HttpVersions, Wish
from gossamer.net.resolve import Resolver
from tests.servers.certificates import Authority
from tests.servers.crawling import gossamer
from tests.servers.http2 import Conversation, Fields, Http2Server, run_alpn_server, run_http2
from tests.servers.http_proxy import run_http_proxy
from tests.servers.nginx import Nginx, run_nginx

HOST = "two.test"
PAGES = 60
LIMITS = ResponseLimits(header_bytes=16 * 1024, body_bytes=512 * 1024)
TIMEOUTS = Timeouts(connect=20.0, first_byte=20.0, idle=20.0, total=20.0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Nginx]:
    """It ends a connection after 25 requests, in the middle of others."""
    root = tmp_path_factory.mktemp("root")
    for number in range(PAGES):
        (root / f"{number}.html").write_text(f"page {number} " * 2000)
    chain = authority.issue(HOST)
    with run_nginx(root, tmp_path_factory.mktemp("nginx"), chain=chain, keepalive_requests=25, http2=True) as server:
        yield server


@asynccontextmanager
async def open_client(authority: Authority, wish: Wish = "prefer", **options: Any) -> AsyncIterator[HttpClient]:
    """A client that leaves no connection behind."""
    client = HttpClient(
        Resolver(overrides={"*": "127.0.0.1"}), extra_ca=str(authority.ca), versions=HttpVersions(wish),
        **({"limits": LIMITS, "timeouts": TIMEOUTS} | options),
    )  # fmt: skip
    try:
        yield client
    finally:
        await client.close()
        assert client.open_connections == 0
        assert client.bodies_in_flight_bytes == 0


async def get(client: HttpClient, server: Http2Server | int, path: str = "/", **options: Any) -> FetchResponse:
    port = server if isinstance(server, int) else server.port
    return await client.fetch(FetchRequest(f"https://{HOST}:{port}{path}", **options))


def page(conversation: Conversation, stream: int, _: Fields) -> None:
    """The answer of most servers here."""
    conversation.respond(stream, b"hello", headers=[("content-type", "text/html")])


async def test_pages_of_a_real_server_over_connections_that_it_ends(authority: Authority, nginx: Nginx) -> None:
    async with open_client(authority, connections=PoolLimits(per_address=8)) as client:
        assert nginx.tls_port is not None
        port = nginx.tls_port
        first = await get(client, port, "/0.html")
        fetched = await asyncio.gather(*(get(client, port, f"/{number}.html") for number in range(PAGES)))
        encoded = await get(client, port, "/gzip/1.html", keep_wire=True)
    assert (first.http_version, first.ip, first.reused, first.status) == ("2", "127.0.0.1", False, 200)
    assert first.timings.tls > 0
    assert first.response_head.startswith(b"HTTP/2 200 \r\nserver: nginx\r\n")
    assert [one.body for one in fetched] == [f"page {number} ".encode() * 2000 for number in range(PAGES)]
    assert {one.http_version for one in fetched} == {"2"}
    assert any(one.reused for one in fetched)
    assert encoded.body == b"page 1 " * 2000
    assert encoded.wire_body is not None
    assert len(encoded.wire_body) < 1000


async def test_the_server_sees_one_connection_and_the_headers_of_the_request(authority: Authority) -> None:
    async with run_http2(authority.issue(HOST), page) as server, open_client(authority) as client:
        headers = (("User-Agent", "test"), ("Cookie", "a=b"))
        fetched = await asyncio.gather(*(get(client, server, f"/{n}?q", headers=headers) for n in range(20)))
        posted = await get(client, server, "/form", method="POST", body=b"x" * 200_000)
        assert len(server.connections) == 1
    assert {one.body for one in fetched} == {b"hello"}
    assert posted.status == 200
    seen = server.requests[0]
    assert {name: seen[name] for name in (":method", ":scheme", ":authority", "user-agent", "cookie")} == {
        ":method": "GET", ":scheme": "https", ":authority": f"{HOST}:{server.port}", "user-agent": "test",
        "cookie": "a=b",
    }  # fmt: skip
    assert "connection" not in seen
    assert {one[":path"] for one in server.requests[:20]} == {f"/{n}?q" for n in range(20)}
    assert server.connections[0].bodies[41] == b"x" * 200_000


async def test_no_more_streams_are_open_than_the_server_permits(authority: Authority) -> None:
    async with run_http2(authority.issue(HOST), page, streams=3) as server, open_client(authority) as client:
        await get(client, server)
        fetched = await asyncio.gather(*(get(client, server) for _ in range(12)))
        assert {one.status for one in fetched} == {200}
        assert not server.faults
        assert len(server.connections) == 4  # 12 requests at once, three on each


async def test_a_page_over_its_limit_is_cut_and_the_connection_stays(authority: Authority) -> None:
    def large(conversation: Conversation, stream: int, fields: Fields) -> None:
        conversation.respond(stream, b"x" * (4 * 1024 * 1024 if fields[":path"] == "/large" else 5))

    async with run_http2(authority.issue(HOST), large) as server, open_client(authority) as client:
        cut = await get(client, server, "/large")
        after = await get(client, server, "/small")
        assert len(server.connections) == 1
    assert (cut.truncated, len(cut.body)) == (True, LIMITS.body_bytes)
    assert cut.received_bytes < 2 * LIMITS.body_bytes
    assert (after.truncated, after.body) == (False, b"xxxxx")
    assert server.resets == [ErrorCodes.CANCEL]


async def test_a_cancelled_request_is_reset_and_leaves_the_others_alone(authority: Authority) -> None:
    begun = asyncio.Event()

    def silent(conversation: Conversation, stream: int, fields: Fields) -> None:
        if fields[":path"] == "/silent":
            begun.set()
        else:
            conversation.respond(stream, b"hello")

    async with run_http2(authority.issue(HOST), silent) as server, open_client(authority) as client:
        await get(client, server, "/page")
        task = asyncio.create_task(get(client, server, "/silent"))
        other = asyncio.create_task(get(client, server, "/silent"))
        await begun.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await get(client, server, "/page")).body == b"hello"
        assert len(server.connections) == 1
        assert not other.done()
        other.cancel()
        await asyncio.gather(other, return_exceptions=True)
    assert server.resets == [ErrorCodes.CANCEL] * 2


async def test_a_request_whose_answer_comes_before_its_end_is_given_up(authority: Authority) -> None:
    """Else its stream would stay open for the life of the connection."""

    def refuse(conversation: Conversation, stream: int, fields: Fields) -> None:
        if ":path" in fields:
            conversation.respond(stream, b"hello", "200" if fields[":path"] == "/" else "413")

    async with run_http2(authority.issue(HOST), refuse) as server, open_client(authority) as client:
        server.early = "/form"
        posted = await get(client, server, "/form", method="POST", body=b"x" * 1_000_000)
        assert (posted.status, posted.body) == (413, b"hello")
        assert (await get(client, server)).body == b"hello"
        assert len(server.connections) == 1
    assert server.resets == [ErrorCodes.CANCEL]


async def test_a_request_that_the_server_has_not_taken_is_sent_again(authority: Authority) -> None:
    """With GOAWAY, and with REFUSED_STREAM."""
    told: list[str] = []

    def refuse(conversation: Conversation, stream: int, fields: Fields) -> None:
        path = fields[":path"]
        if path not in told:
            told.append(path)
            if path == "/away":
                return conversation.write(frame(7, 0, 0, (stream - 2).to_bytes(4, "big") + bytes(4)))
            if path == "/refused":
                return conversation.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
        return conversation.respond(stream, b"hello")

    async with run_http2(authority.issue(HOST), refuse) as server, open_client(authority) as client:
        for path in ("/first", "/away", "/refused"):
            assert (await get(client, server, path)).body == b"hello"
        assert len(server.connections) == 3
        told.remove("/refused")
        with pytest.raises(ConnectionLost) as lost:  # charged: the caller has to charge it again
            await get(client, server, "/refused", send_by=float("inf"))
        assert lost.value.repeatable


async def test_a_server_that_takes_no_request_cannot_keep_one_for_ever(authority: Authority) -> None:
    """Every answer pays for one refusal, which may be repeated. After that, a refusal is a failed attempt."""

    def refuse(conversation: Conversation, stream: int, fields: Fields) -> None:
        if fields[":path"] == "/":
            conversation.respond(stream, b"hello")
        else:
            conversation.h2.reset_stream(stream, ErrorCodes.REFUSED_STREAM)

    async with run_http2(authority.issue(HOST), refuse) as server, open_client(authority) as client:
        await get(client, server)
        repeatable = []
        for _ in range(3):
            with pytest.raises(ConnectionLost) as lost:
                await get(client, server, "/refused", send_by=float("inf"))
            repeatable.append(lost.value.repeatable)
    assert repeatable == [True, False, False]


async def test_bodies_that_the_budget_pauses_go_on(authority: Authority) -> None:
    """All of one connection, whose own window never runs out."""
    size = 400 * 1024

    def large(conversation: Conversation, stream: int, _: Fields) -> None:
        conversation.respond(stream, b"x" * size)

    async with (
        run_http2(authority.issue(HOST), large) as server,
        open_client(authority, budget=ByteBudget(100 * 1024)) as client,
    ):
        fetched = await asyncio.gather(*(get(client, server) for _ in range(6)))
        assert {len(one.body) for one in fetched} == {size}
        assert len(server.connections) == 1


async def test_no_request_joins_a_connection_that_has_gone_silent(authority: Authority) -> None:
    """Else one that is dead would take all requests of a busy site, one after the other."""
    timeouts = Timeouts(connect=20.0, first_byte=0.3, idle=20.0, total=20.0)

    begun = asyncio.Event()

    def silent(conversation: Conversation, stream: int, fields: Fields) -> None:
        if fields[":path"] == "/":
            conversation.respond(stream, b"hello")
        else:
            begun.set()

    async with (
        run_http2(authority.issue(HOST), silent) as server,
        open_client(authority, timeouts=timeouts) as client,
    ):
        await get(client, server)
        ended = await asyncio.gather(*(get(client, server, "/silent") for _ in range(2)), return_exceptions=True)
        assert [type(one) for one in ended] == [FirstByteTimeout] * 2
        begun.clear()
        held = asyncio.create_task(get(client, server, "/silent"))
        await begun.wait()
        await get(client, server)  # this connection is not silent
        await asyncio.gather(held, return_exceptions=True)
        assert (await get(client, server)).body == b"hello"
        assert len(server.connections) == 2


async def test_pages_through_a_proxy(authority: Authority) -> None:
    """By CONNECT. All pages take one tunnel."""
    async with run_http2(authority.issue(HOST), page) as server, open_client(authority) as client:
        with run_http_proxy() as port:
            request = FetchRequest(
                f"https://127.0.0.1:{server.port}/", proxy=f"http://127.0.0.1:{port}", allow_private=True, insecure=True
            )
            fetched = await asyncio.gather(*(client.fetch(request) for _ in range(5)))
        assert [(one.body, one.http_version) for one in fetched] == [(b"hello", "2")] * 5
        assert len(server.connections) == 1


def test_a_crawl_by_http2(tmp_path: Path, authority: Authority, nginx: Nginx) -> None:
    """With the records of any other crawl."""
    url = f"https://{HOST}:{nginx.tls_port}"
    seeds = [f"{url}/{number}.html" for number in range(30)]
    done = gossamer(
        "crawl", *seeds, "--http2", "prefer", "--resolve", f"{HOST}:127.0.0.1", "--ca-file", str(authority.ca),
        "--rate", "1000/1", "-o", "pages.jsonl", "-o", "pages.warc", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    pages = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert sorted(one["url"] for one in pages) == sorted(seeds)
    assert (tmp_path / "pages.warc").read_bytes().count(b"WARC-Protocol: h2\r\n") == 30


# --- responses that are not as they should be -------------------------------------------------------------------------

READABLE: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {
    "a connection that is kept": ("200", [("connection", "keep-alive"), ("keep-alive", "timeout=5")], b"hello"),
    "chunks": ("200", [("transfer-encoding", "chunked")], b"hello"),
    "spaces": ("200", [("x-spaces", " a ")], b"hello"),
    "no number": ("200", [("content-length", "many")], b"hello"),
    "the length of another response": ("304", [("content-length", "5")], b""),
    "no content": ("204", [("content-length", "5")], b""),
    "cookies": ("200", [("set-cookie", "a=1"), ("set-cookie", "b=2")], b"hello"),
}
MALFORMED: dict[str, tuple[str, list[tuple[str, str]], bytes]] = {
    "a large letter": ("200", [("Content-Type", "text/html")], b"hello"),
    "two lines": ("200", [("x", "y\r\nz: 1")], b"hello"),
    "a zero": ("200", [("x", "y\0")], b"hello"),
    "a colon": ("200", [("x: y", "z")], b"hello"),
    "another pseudo header": ("200", [(":path", "/")], b"hello"),
    "no status": ("hm", [], b"hello"),
    "too long": ("200", [("content-length", "4")], b"hello"),
    "too short": ("200", [("content-length", "6")], b"hello"),
}


async def test_an_odd_response_fails_no_other_request(authority: Authority) -> None:
    """What a browser reads is read; of what it refuses, only that request fails, and the connection stays."""
    waiting: list[int] = []

    def odd(conversation: Conversation, stream: int, fields: Fields) -> None:
        path = fields[":path"]
        if path == "/waits":
            waiting.append(stream)
        elif path == "/go":
            conversation.respond(waiting.pop(), b"hello")
            conversation.respond(stream)
        else:
            status, headers, body = (READABLE | MALFORMED)[unquote(path[1:])]
            conversation.respond(stream, body, status, headers)

    async with run_http2(authority.issue(HOST), odd) as server, open_client(authority) as client:
        waits = asyncio.create_task(get(client, server, "/waits"))
        for name, (status, headers, body) in READABLE.items():
            fetched = await get(client, server, f"/{quote(name)}")
            assert (fetched.status, fetched.body) == (int(status), body), name
            assert fetched.headers == [(key, value.strip()) for key, value in headers], name
        for name in MALFORMED:
            with pytest.raises(BadResponse):
                await get(client, server, f"/{quote(name)}", send_by=float("inf"))
        await get(client, server, "/go")
        assert (await waits).body == b"hello"
        assert len(server.connections) == 1


async def test_requests_that_fail_together_have_their_own_errors(authority: Authority) -> None:
    """Each with its own response, as far as it came, and with another attempt: one server's frames do not show which
    request is to blame."""
    begun: list[Conversation] = []

    def break_off(conversation: Conversation, stream: int, fields: Fields) -> None:
        if fields[":path"] == "/":
            return conversation.respond(stream, b"hello")
        conversation.respond(stream, fields[":path"].encode(), end=False)
        begun.append(conversation)
        return conversation.write(b"\xff" * 1000) if len(begun) == 4 else None

    async with run_http2(authority.issue(HOST), break_off) as server, open_client(authority) as client:
        await get(client, server)
        paths = [f"/{number}" for number in range(4)]
        failed = await asyncio.gather(*(get(client, server, path) for path in paths), return_exceptions=True)
        assert len(server.connections) == 1
    assert [one.response.body.decode() for one in failed if isinstance(one, ConnectionLost)] == paths


# --- what a hostile server sends --------------------------------------------------------------------------------------


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A field that the table of fields remembers (HPACK)."""
    return b"\x40" + bytes([len(name)]) + name + b"\x7f" + number(len(value) - 127) + value


def number(rest: int) -> bytes:
    """A number of HPACK beyond its prefix."""
    coded = b""
    while rest >= 128:
        coded += bytes([rest % 128 + 128])
        rest //= 128
    return coded + bytes([rest])


STATUS_200 = b"\x88"
ATTACKS: dict[str, tuple[type[FetchError], str, Any]] = {
    "settings": (BadResponse, "endless frames", lambda stream: frame(4, 0, 0) * 50_000),
    "pings": (BadResponse, "endless frames", lambda stream: frame(6, 0, 0, bytes(8)) * 50_000),
    "windows": (BadResponse, "endless frames", lambda stream: frame(8, 0, 0, b"\0\0\0\1") * 50_000),
    "priorities": (BadResponse, "endless frames", lambda stream: frame(2, 0, stream, b"\0\0\0\0\1") * 50_000),
    "unknown": (BadResponse, "endless frames", lambda stream: frame(99, 0, 0, b"x") * 50_000),
    "empty data": (
        BadResponse, "endless frames", lambda stream: frame(1, 4, stream, STATUS_200) + frame(0, 0, stream) * 50_000,
    ),
    "interim": (
        BadResponse, "interim", lambda stream: frame(1, 4, stream, b"\x08\x03100") * 1000,
    ),
    "short data": (
        BadResponse, "short frames",
        lambda stream: frame(1, 4, stream, STATUS_200) + frame(0, 0, stream, b"x") * 50_000,
    ),
    "continuations": (
        BadResponse, "continuation", lambda stream: frame(1, 0, stream, STATUS_200) + frame(9, 0, stream) * 50_000,
    ),
    "long headers": (
        HeadersTooLarge, "bytes",
        lambda stream: frame(1, 4, stream, STATUS_200 + literal(b"x", b"y" * 3000) + b"\xbe" * 1000),
    ),
    "many headers": (
        HeadersTooLarge, "headers", lambda stream: frame(1, 5, stream, STATUS_200 + b"\x00\x01x\x00" * 600),
    ),
    "a push": (
        BadResponse, "HTTP/2", lambda stream: frame(5, 4, stream, b"\0\0\0\2" + b"\x82\x87\x84\x41\x01a"),
    ),
    "a large frame": (BadResponse, "a frame of", lambda stream: frame(0, 0, stream, bytes(100_000))),
    "another length": (
        BadResponse, "HTTP/2",
        lambda stream: frame(1, 4, stream, STATUS_200 + b"\x0f\x0d\x012") + frame(0, 1, stream, b"xxx"),
    ),
    "data before the head": (BadResponse, "HTTP/2", lambda stream: frame(0, 0, stream, b"x")),
    "another stream": (BadResponse, "HTTP/2", lambda stream: frame(1, 5, stream + 20, STATUS_200)),
    "a status": (BadResponse, "status", lambda stream: frame(1, 5, stream, b"\x08\x0399x")),
    "a bad table": (BadResponse, "HTTP/2", lambda stream: frame(1, 5, stream, b"\xff\xff\xff\xff\xff")),
    "garbage": (BadResponse, "HTTP/2", lambda stream: b"\xff" * 1000),
    "a short goaway": (BadResponse, "GOAWAY", lambda stream: frame(7, 0, 0, b"")),
    "an end": (ConnectionLost, "before", None),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_a_hostile_server_sends_is_bounded(authority: Authority, attack: str) -> None:
    """It fails the request with a reason, and the connection is gone."""
    kind, words, raw = ATTACKS[attack]

    def strike(conversation: Conversation, stream: int, fields: Fields) -> None:
        if fields[":path"] == "/good":
            conversation.respond(stream, b"hello")
        elif raw is None:
            conversation.flush()
            conversation.transport.close()
        else:
            conversation.write(raw(stream))

    async with run_http2(authority.issue(HOST), strike) as server, open_client(authority) as client:
        await get(client, server, "/good")
        with pytest.raises(kind, match=words):
            await get(client, server, "/bad", send_by=float("inf"))
        assert client.open_connections == 0
        assert (await get(client, server, "/good")).http_version == "2"


# --- which version is spoken ------------------------------------------------------------------------------------------

OF_1 = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
REFUSAL_OF_1 = b"HTTP/1.1 505 No\r\nContent-Length: 0\r\n\r\n"


async def test_a_site_that_only_speaks_2_is_read_by_default(authority: Authority) -> None:
    """It ignores what the handshake offers, and greets with frames. A page of a crawl goes back to be charged again,
    once; any other request is sent again at once."""
    async with run_http2(authority.issue(HOST), page) as server:
        async with open_client(authority, "auto") as client:
            with pytest.raises(ConnectionLost) as lost:
                await get(client, server, send_by=float("inf"))
            assert lost.value.repeatable
            for _ in range(2):
                fetched = await get(client, server, send_by=float("inf"))
                assert (fetched.body, fetched.http_version) == (b"hello", "2")
            assert len(server.requests) == 2
        async with open_client(authority, "auto") as client:
            assert (await get(client, server)).http_version == "2"
        async with open_client(authority, "never") as client:
            with pytest.raises(Http2Needed, match="with frames of HTTP/2"):
                await get(client, server)


async def test_a_handshake_that_fails_for_the_version_is_tried_with_2(authority: Authority) -> None:
    """Nothing was sent, so the request need not be charged again. This server speaks no HTTP after the handshake."""
    chain = authority.issue(HOST)
    with run_alpn_server(chain, "h2") as port:
        async with open_client(authority, "never") as client:
            with pytest.raises(Http2Needed, match="refuses a TLS handshake"):
                await get(client, port, send_by=float("inf"))
        async with open_client(authority, "auto") as client:
            with pytest.raises(ConnectionLost, match="HTTP/2"):
                await get(client, port, send_by=float("inf"))
            with pytest.raises(TlsFailed):
                await get(client, port, send_by=float("inf"))


async def test_a_site_that_speaks_both_is_read_by_1_unless_2_is_preferred(authority: Authority, nginx: Nginx) -> None:
    assert nginx.tls_port is not None
    spoken: dict[Wish, str] = {"never": "1.1", "auto": "1.1", "prefer": "2"}
    for wish, version in spoken.items():
        async with open_client(authority, wish) as client:
            assert (await get(client, nginx.tls_port, "/1.html")).http_version == version


async def test_a_server_that_chooses_1_is_read_by_1(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("hello")
    folder = tmp_path / "nginx"
    folder.mkdir()
    with run_nginx(tmp_path, folder, chain=authority.issue(HOST)) as server:
        async with open_client(authority) as client:
            for _ in range(3):
                fetched = await get(client, server.tls_port or 0)
                assert (fetched.body, fetched.http_version) == (b"hello", "1.1")
            assert client.open_connections <= 2


async def test_a_status_that_asks_for_another_version_is_tried_with_2_once(authority: Authority) -> None:
    """Where HTTP/2 does not help, the page has that status."""
    for versions, expected in ((["h2", "http/1.1"], ("2", 200)), (["http/1.1"], ("1.1", 505))):
        async with (
            run_http2(authority.issue(HOST), page, versions=versions, by_1=REFUSAL_OF_1) as server,
            open_client(authority, "auto") as client,
        ):
            fetched = await get(client, server)
            assert (fetched.http_version, fetched.status) == expected
            fetched = await get(client, server, send_by=float("inf"))
            assert (fetched.http_version, fetched.status) == expected
            assert server.requests_by_1 == (1 if expected[0] == "2" else 3)


@pytest.mark.parametrize("by_1", [b"", REFUSAL_OF_1], ids=["hangs up", "answers 505"])
@pytest.mark.parametrize("wish", ["never", "auto"])
async def test_a_sign_of_2_is_named_where_2_cannot_be_spoken(
    authority: Authority, by_1: bytes, wish: Wish, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because of the setting, or because its library is not installed. A server that has answered by HTTP/1.1 before
    has another reason."""
    monkeypatch.setattr(http_versions, "find_spec", lambda _: None)
    cause = "the setting http2 is never" if wish == "never" else "the extra http2 is not installed"
    async with run_http2(authority.issue(HOST), page, versions=["h2", "http/1.1"], by_1=by_1) as server:
        async with open_client(authority, wish) as client:
            for _ in range(2):
                with pytest.raises(Http2Needed, match=f"only HTTP/2: it .*, and {cause}$") as no:
                    await get(client, server)
                assert no.value.is_sure == bool(by_1)
        server.by_1 = OF_1
        async with open_client(authority, wish) as client:
            assert (await get(client, server)).body == b"hi"
            server.by_1 = by_1
            if by_1:
                assert (await get(client, server)).status == 505
            else:
                with pytest.raises(ConnectionLost):
                    await get(client, server)


@pytest.mark.parametrize("scheme", ["https", "http"])
async def test_commands_name_the_option_that_rules_out_2(tmp_path: Path, authority: Authority, scheme: str) -> None:
    """A crawl, its summary, `why` and `fetch`, all at once: robots.txt is waited for no longer than a page. Also where
    the site redirects to https."""
    async with (
        run_http2(authority.issue(HOST), page, versions=["h2", "http/1.1"], by_1=REFUSAL_OF_1) as server,
        serve(WebSpec(hosts=1, pages=1)) as web,
    ):
        web.mount(HOST, "/robots.txt", redirect(f"https://{HOST}:{server.port}/robots.txt"))
        url = f"{scheme}://{HOST}:{server.port if scheme == 'https' else web.port}/"
        given = ("--resolve", f"{HOST}:127.0.0.1", "--ca-file", str(authority.ca), "--http2", "never")
        crawl = await asyncio.to_thread(gossamer, "crawl", url, *given, "-o", "a.jsonl", cwd=tmp_path)
        why = await asyncio.to_thread(gossamer, "why", url, cwd=tmp_path)
        fetch = await asyncio.to_thread(gossamer, "fetch", url, *given, cwd=tmp_path)
    assert "(it answers HTTP/1.1 with the status 505, and the setting http2 is never). Leave out --http2 never" in (
        crawl.stderr
    )
    assert "Retrying" not in crawl.stderr
    assert "The site seems to speak only HTTP/2: 1" in crawl.stdout
    assert "Leave out --http2 never." in crawl.stdout
    assert "advice   Leave out --http2 never" in why.stdout
    assert "advice     Leave out --http2 never" in fetch.stdout
    for shown in (crawl.stderr, crawl.stdout, why.stdout, fetch.stdout):
        assert "--ignore-robots" not in shown


def test_fetch_shows_the_version_that_was_spoken(tmp_path: Path, authority: Authority, nginx: Nginx) -> None:
    """HTTP/2 has no phrase beside the status."""
    for wish, line, version in (("never", "200 OK from 127.0.0.1:", "1.1"), ("prefer", "200 from 127.0.0.1:", "2")):
        shown = gossamer(
            "fetch", f"https://{HOST}:{nginx.tls_port}/1.html", "--http2", wish, "--resolve", f"{HOST}:127.0.0.1",
            "--ca-file", str(authority.ca), cwd=tmp_path,
        )  # fmt: skip
        assert f"  response   {line}{nginx.tls_port}\n  http       {version}\n" in shown.stdout


@pytest.mark.parametrize("silence", ["hangs up", "says nothing"])
async def test_a_server_that_never_answers_by_1_is_tried_with_2_with_the_next_attempt(
    authority: Authority, silence: str
) -> None:
    timeouts = Timeouts(connect=20.0, first_byte=0.3, idle=20.0, total=20.0)
    by_1 = b"" if silence == "hangs up" else None
    async with (
        run_http2(authority.issue(HOST), page, versions=["h2", "http/1.1"], by_1=by_1) as server,
        open_client(authority, "auto", timeouts=timeouts) as client,
    ):
        with pytest.raises(ConnectionLost if by_1 is not None else FirstByteTimeout):
            await get(client, server, send_by=float("inf"))
        assert (await get(client, server, send_by=float("inf"))).http_version == "2"


async def test_a_server_that_hangs_up_by_1_is_tried_with_2_at_once_for_what_has_no_later_attempt(
    authority: Authority,
) -> None:
    """robots.txt, and the page of `gossamer fetch`."""
    async with (
        run_http2(authority.issue(HOST), page, versions=["h2", "http/1.1"], by_1=b"") as server,
        open_client(authority, "auto") as client,
    ):
        assert (await get(client, server)).http_version == "2"
        assert server.requests_by_1 == 1


async def test_a_server_that_wants_1_gets_1(authority: Authority) -> None:
    """It says so with HTTP_1_1_REQUIRED."""

    def refuse(conversation: Conversation, stream: int, fields: Fields) -> None:
        conversation.h2.reset_stream(stream, ErrorCodes.HTTP_1_1_REQUIRED)

    async with run_http2(authority.issue(HOST), refuse, versions=["h2", "http/1.1"], by_1=OF_1) as server:
        async with open_client(authority) as client:
            with pytest.raises(ConnectionLost) as lost:
                await get(client, server, send_by=float("inf"))
            assert lost.value.repeatable
            assert (await get(client, server, send_by=float("inf"))).body == b"hi"
        async with open_client(authority) as client:
            assert (await get(client, server)).http_version == "1.1"
        assert len(server.requests) == 2
