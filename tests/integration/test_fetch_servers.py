"""Two real servers of different makes: keep-alive, encodings, TLS, HTTP/1.0, many at once."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvloop

from gossamer.errors import BadInput, ConnectFailed, ConnectionLost, TlsFailed
from gossamer.fetch.client import HttpClient, PoolLimits
from gossamer.fetch.exchange import FetchRequest, ResponseLimits, Timings
from gossamer.net.resolve import Resolver
from tests.servers.certificates import Authority
from tests.servers.nginx import Nginx, run_nginx
from tests.servers.other import Lighttpd, run_lighttpd

HOST = "real.test"
PAGE = b"<p>The thread on which small spiders travel.</p>\n" * 400


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers serve."""
    root = tmp_path_factory.mktemp("root")
    (root / "page.html").write_bytes(PAGE)
    (root / "empty.html").write_bytes(b"")
    (root / "large.html").write_bytes(PAGE * 20)
    return root


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority, root: Path) -> Iterator[Nginx]:
    """It closes a connection after five requests, so that keeping and closing both happen."""
    with run_nginx(root, tmp_path_factory.mktemp("nginx"), chain=authority.issue(HOST), keepalive_requests=5) as server:
        yield server


@pytest.fixture(scope="module")
def lighttpd(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Iterator[Lighttpd]:
    """It compresses with deflate."""
    with run_lighttpd(root, tmp_path_factory.mktemp("lighttpd"), keepalive_requests=5) as server:
        yield server


def make_client(authority: Authority, **options: object) -> HttpClient:
    """Every name is at a loopback address."""
    return HttpClient(Resolver(overrides={"*": "127.0.0.1"}), extra_ca=str(authority.ca), **options)  # type: ignore[arg-type]


@pytest.fixture
async def client(authority: Authority) -> AsyncIterator[HttpClient]:
    """As most tests want it."""
    client = make_client(authority)
    yield client
    await client.close()
    assert client.open_connections == 0


async def test_a_page_and_all_that_is_known_of_it(client: HttpClient, nginx: Nginx) -> None:
    """Raw heads, address, timings, sizes."""
    url = f"http://{HOST}:{nginx.port}/page.html"
    fetched = await client.fetch(FetchRequest(url, headers=(("User-Agent", "test"),)))
    assert (fetched.url, fetched.status, fetched.reason, fetched.http_version) == (url, 200, "OK", "1.1")
    assert fetched.body == PAGE
    assert fetched.wire_body is None
    assert (fetched.ip, fetched.port, fetched.reused, fetched.truncated) == ("127.0.0.1", nginx.port, False, False)
    assert fetched.request_head.startswith(b"GET /page.html HTTP/1.1\r\nHost: real.test:")
    assert fetched.response_head.endswith(b"\r\n\r\n")
    assert fetched.response_head.splitlines()[1:-1] == [f"{name}: {value}".encode() for name, value in fetched.headers]
    assert fetched.received_bytes == len(fetched.response_head) + len(PAGE)
    timings = fetched.timings
    assert timings.connect > 0
    assert timings.tls == 0
    assert timings.total >= timings.dns + timings.connect + timings.first_byte > 0
    again = await client.fetch(FetchRequest(url))
    assert again.reused
    assert (again.timings.connect, again.timings.tls) == (0.0, 0.0)


async def test_encoded_bodies(client: HttpClient, nginx: Nginx, lighttpd: Lighttpd) -> None:
    """Chunked gzip from nginx, deflate from lighttpd; the body as sent is kept on demand."""
    for url, encoding in [
        (f"http://{HOST}:{nginx.port}/gzip/page.html", "gzip"),
        (f"http://{HOST}:{nginx.port}/whole/page.html", "gzip"),
        (f"http://{HOST}:{lighttpd.port}/page.html", "deflate"),
    ]:
        fetched = await client.fetch(FetchRequest(url, keep_wire=True))
        assert dict(fetched.headers)["Content-Encoding"] == encoding
        assert fetched.body == PAGE
        assert fetched.wire_body is not None
        assert 0 < len(fetched.wire_body) < len(PAGE) / 10


async def test_statuses_and_methods(client: HttpClient, nginx: Nginx, lighttpd: Lighttpd) -> None:
    """Whatever its status, an answer is an answer; redirects are not followed."""
    for server in (nginx, lighttpd):
        base = f"http://{HOST}:{server.port}"
        assert (await client.fetch(FetchRequest(base + "/nothing"))).status == 404
        moved = await client.fetch(FetchRequest(base + "/moved"))
        assert moved.status == 301
        assert dict(moved.headers)["Location"].endswith("/elsewhere")
        head = await client.fetch(FetchRequest(base + "/page.html", method="HEAD"))
        assert (head.status, head.body) == (200, b"")
        assert (await client.fetch(FetchRequest(base + "/empty.html"))).body == b""
        assert (await client.fetch(FetchRequest(base + "/page.html", method="OPTIONS"))).status in (200, 405)
        assert (await client.fetch(FetchRequest(base + "/page.html", method="POST", body=b"x" * 9))).status in (
            200,
            405,
        )
        assert (await client.fetch(FetchRequest(base + "/page.html"))).body == PAGE
    empty = await client.fetch(FetchRequest(f"http://{HOST}:{nginx.port}/empty"))
    assert (empty.status, empty.body) == (204, b"")
    with pytest.raises(ConnectionLost):
        await client.fetch(FetchRequest(f"http://{HOST}:{nginx.port}/hang-up"))


async def test_credentials_in_a_url(client: HttpClient, nginx: Nginx) -> None:
    """Become a header."""
    fetched = await client.fetch(FetchRequest(f"http://u:p@{HOST}:{nginx.port}/echo"))
    assert fetched.body == b"GET  Basic dTpw"


async def test_many_at_once_over_few_connections(authority: Authority, nginx: Nginx, lighttpd: Lighttpd) -> None:
    """Servers that close every fifth connection lose nothing, and the bounds hold."""
    client = make_client(authority, connections=PoolLimits(total=12, per_address=8))
    bases = [f"http://{HOST}:{nginx.port}", f"https://{HOST}:{nginx.tls_port}", f"http://{HOST}:{lighttpd.port}"]
    most = 0

    async def fetch(index: int) -> None:
        nonlocal most
        fetched = await client.fetch(FetchRequest(bases[index % 3] + "/page.html"))
        assert fetched.body == PAGE
        most = max(most, client.open_connections)

    await asyncio.gather(*(fetch(index) for index in range(600)))
    assert 0 < most <= 12
    await client.close()


async def test_a_body_is_cut_at_the_limit(authority: Authority, nginx: Nginx) -> None:
    """And the connection is of no further use."""
    client = make_client(authority, limits=ResponseLimits(body_bytes=10_000))
    url = f"http://{HOST}:{nginx.port}/large.html"
    for _ in range(2):
        fetched = await client.fetch(FetchRequest(url))
        assert (fetched.body, fetched.truncated, fetched.reused) == ((PAGE * 20)[:10_000], True, False)
        assert client.open_connections == 0
    await client.close()


async def test_tls_is_verified_and_resumed(authority: Authority, nginx: Nginx) -> None:
    """nginx says itself whether it resumed a session."""
    client = make_client(authority, connections=PoolLimits(idle_seconds=0))
    exchange = FetchRequest(f"https://{HOST}:{nginx.tls_port}/again")
    resumed = [(await client.fetch(exchange)).body.split()[2] for _ in range(3)]
    assert resumed == [b".", b"r", b"r"]
    with pytest.raises(TlsFailed, match="Hostname mismatch"):
        await client.fetch(FetchRequest(f"https://other.test:{nginx.tls_port}/"))
    insecure = FetchRequest(f"https://other.test:{nginx.tls_port}/page.html", insecure=True)
    assert (await client.fetch(insecure)).body == PAGE
    # A session made without verification must not open the door for the next, verified exchange.
    with pytest.raises(TlsFailed):
        await client.fetch(FetchRequest(f"https://other.test:{nginx.tls_port}/"))
    await client.close()


async def test_an_unknown_authority_is_refused(nginx: Nginx) -> None:
    """The system's trust store does not know the test's."""
    client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}))
    with pytest.raises(TlsFailed, match="unable to get local issuer"):
        await client.fetch(FetchRequest(f"https://{HOST}:{nginx.tls_port}/"))
    await client.close()
    assert client.open_connections == 0


async def test_an_expired_certificate_is_refused(authority: Authority, tmp_path: Path) -> None:
    """Unless certificates do not matter."""
    (tmp_path / "index.html").write_text("old")
    client = make_client(authority)
    with run_nginx(tmp_path, tmp_path, chain=authority.issue(HOST, expired=True)) as server:
        with pytest.raises(TlsFailed, match="expired"):
            await client.fetch(FetchRequest(f"https://{HOST}:{server.tls_port}/"))
        assert (await client.fetch(FetchRequest(f"https://{HOST}:{server.tls_port}/", insecure=True))).body == b"old"
        await client.close()


def test_an_authority_that_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    """Not when the first https page comes."""
    empty = tmp_path / "empty.pem"
    empty.touch()
    for path, reason in ((empty, "PEM"), (tmp_path / "nothing.pem", "No such file")):
        with pytest.raises(BadInput, match=reason):
            HttpClient(Resolver(), extra_ca=str(path))


async def test_tls_to_a_plain_port_and_back(client: HttpClient, nginx: Nginx) -> None:
    """The wrong scheme is an error, or the server's own answer."""
    with pytest.raises(TlsFailed):
        await client.fetch(FetchRequest(f"https://{HOST}:{nginx.port}/"))
    assert (await client.fetch(FetchRequest(f"http://{HOST}:{nginx.tls_port}/"))).status == 400


async def test_nobody_listens(client: HttpClient) -> None:
    """Port 1 is nobody's."""
    with pytest.raises(ConnectFailed, match=r"127\.0\.0\.1:1"):
        await client.fetch(FetchRequest(f"http://{HOST}:1/"))
    assert client.open_connections == 0


def test_it_runs_on_uvloop(authority: Authority, nginx: Nginx, lighttpd: Lighttpd) -> None:
    """The loop the crawler uses."""

    async def main() -> list[tuple[bytes, Timings]]:
        client = make_client(authority)
        urls = [
            f"http://{HOST}:{nginx.port}/gzip/page.html",
            f"https://{HOST}:{nginx.tls_port}/page.html",
            f"http://{HOST}:{lighttpd.port}/page.html",
        ]
        answers = await asyncio.gather(*(client.fetch(FetchRequest(url)) for url in urls * 20))
        with pytest.raises(ConnectFailed):
            await client.fetch(FetchRequest(f"http://{HOST}:1/"))
        await client.close()
        assert client.open_connections == 0
        return [(answer.body, answer.timings) for answer in answers]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert all(body == PAGE for body, _ in runner.run(main()))
