"""Through proxies: a real HTTP proxy, and SOCKS5 with everything that can go wrong there."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gossamer.errors import BadInput, BlockedAddress, ConnectTimeout, DnsFailed, FetchError, ProxyFailed
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest, Timeouts
from gossamer.net.resolve import Resolver
from tests.servers.bad_http import Drip, Stall, Step, run_bad_server
from tests.servers.certificates import Authority, Chain
from tests.servers.forwarding import ForwardingProxy, run_forwarding
from tests.servers.http_proxy import run_http_proxy
from tests.servers.nginx import Nginx, run_nginx
from tests.servers.socks5 import Socks5, run_socks5

HOST = "proxied.test"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Nginx]:
    """The server behind the proxies."""
    folder: Path = tmp_path_factory.mktemp("nginx")
    (folder / "index.html").write_text("behind")
    with run_nginx(folder, folder, chain=authority.issue(HOST)) as server:
        yield server


@pytest.fixture
async def client(authority: Authority) -> AsyncIterator[HttpClient]:
    """Its resolver has the host at a loopback address; `local.test` too, but without permission."""

    async def lookup(name: str) -> list[str]:
        if name == "local.test":
            return ["127.0.0.1"]
        raise OSError("no such name")

    client = HttpClient(Resolver(overrides={HOST: "127.0.0.1"}, lookup=lookup), extra_ca=str(authority.ca))
    yield client
    await client.close()
    assert client.open_connections == 0


async def test_plain_http_through_a_real_proxy(client: HttpClient, nginx: Nginx) -> None:
    """In the absolute form; the proxy's password is shown nowhere."""
    with run_http_proxy(user="u", password="secret") as port:
        # The proxy itself cannot resolve the name, so the address stands in the URL.
        url = f"http://127.0.0.1:{nginx.port}/"
        exchange = FetchRequest(url, proxy=f"http://u:secret@127.0.0.1:{port}", allow_private=True)
        fetched = await client.fetch(exchange)
        assert (fetched.status, fetched.body, fetched.ip) == (200, b"behind", "127.0.0.1")
        assert fetched.request_head.startswith(f"GET {url} HTTP/1.1\r\n".encode())
        assert b"uthorization" not in fetched.request_head
        with pytest.raises(ProxyFailed):
            await client.fetch(FetchRequest(url, proxy=f"http://u:wrong@127.0.0.1:{port}", allow_private=True))


async def test_https_through_a_real_proxy(nginx: Nginx) -> None:
    """By CONNECT; the tunnel is kept for the next request."""
    client = HttpClient(Resolver())
    with run_http_proxy(user="u", password="p w") as port:
        url = f"https://127.0.0.1:{nginx.tls_port}/"
        exchange = FetchRequest(url, proxy=f"http://u:p%20w@127.0.0.1:{port}", allow_private=True, insecure=True)
        first = await client.fetch(exchange)
        second = await client.fetch(exchange)
        assert (first.body, first.reused, second.body, second.reused) == (b"behind", False, b"behind", True)
        assert first.timings.tls > 0
        with pytest.raises(ProxyFailed, match="407"):
            await client.fetch(FetchRequest(url, proxy=f"http://127.0.0.1:{port}", allow_private=True, insecure=True))
    await client.close()


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
@pytest.mark.parametrize("secure", [False, True])
async def test_socks5(client: HttpClient, nginx: Nginx, scheme: str, secure: bool) -> None:
    """With `socks5` the proxy is told the approved address, with `socks5h` the name; TLS is for the name in both."""
    async with run_socks5(Socks5(user=b"u", password=b"p", names={HOST: "127.0.0.1"})) as proxy:
        port = nginx.tls_port if secure else nginx.port
        url = f"http{'s' if secure else ''}://{HOST}:{port}/"
        fetched = await client.fetch(FetchRequest(url, proxy=f"{scheme}://u:p@127.0.0.1:{proxy.port}"))
        named = scheme == "socks5h"
        assert proxy.asked == [(HOST if named else "127.0.0.1", port)]
        assert (fetched.body, fetched.ip) == (b"behind", "" if named else "127.0.0.1")


async def test_the_guard_judges_targets_behind_proxies(client: HttpClient, nginx: Nginx) -> None:
    """A name that is private as seen from here is refused; one unknown here is left to a proxy that resolves names."""
    async with run_socks5(Socks5(names={"elsewhere.test": "127.0.0.1"})) as proxy:
        for scheme in ("socks5", "socks5h"):
            with pytest.raises(BlockedAddress):
                await client.fetch(FetchRequest("http://local.test/", proxy=f"{scheme}://127.0.0.1:{proxy.port}"))
        url = f"http://elsewhere.test:{nginx.port}/"
        with pytest.raises(DnsFailed):
            await client.fetch(FetchRequest(url, proxy=f"socks5://127.0.0.1:{proxy.port}"))
        assert proxy.asked == []
        fetched = await client.fetch(FetchRequest(url, proxy=f"socks5h://127.0.0.1:{proxy.port}"))
        assert fetched.body == b"behind"


@pytest.mark.parametrize(("user", "refuse_with"), [(b"other", 0), (b"u", 2), (b"u", 5), (b"u", 99)])
async def test_a_socks5_proxy_that_refuses(client: HttpClient, nginx: Nginx, user: bytes, refuse_with: int) -> None:
    """Whatever it refuses, it is the proxy that failed."""
    async with run_socks5(Socks5(user=user, password=b"p", refuse_with=refuse_with)) as proxy:
        url = f"http://{HOST}:{nginx.port}/"
        for credentials in ("u:p@", ""):
            with pytest.raises(ProxyFailed):
                await client.fetch(FetchRequest(url, proxy=f"socks5://{credentials}127.0.0.1:{proxy.port}"))


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [b"HTTP/1.1 403 Forbidden\r\n\r\n"],
        [b"HTTP/1.1 200"],
        [b"SSH-2.0\r\n\r\n"],
        [b"HTTP/1.1 200 OK\r\n\r\nunasked"],
        [b"HTTP/1.1 200 OK\r\n" + b"x" * 20_000, Stall()],
    ],
    ids=["hangs up", "forbids", "breaks off", "not HTTP", "speaks first", "endless"],
)
async def test_a_bad_connect_proxy(client: HttpClient, answer: list[bytes | Stall | Drip]) -> None:
    """Its answer to CONNECT is bounded and must be one."""
    async with run_bad_server({f"{HOST}:443": answer}) as proxy:
        with pytest.raises(ProxyFailed):
            await client.fetch(FetchRequest(f"https://{HOST}/", proxy=f"http://127.0.0.1:{proxy.port}"))


@pytest.mark.parametrize("scheme", ["http", "socks5", "socks5h"])
async def test_a_proxy_that_is_not_the_operators_is_judged(client: HttpClient, scheme: str) -> None:
    """Whoever may not reach a private address may not make it a proxy either; nothing is said to it."""
    async with run_socks5(Socks5()) as proxy:
        for host in ("127.0.0.1", "local.test", "[::ffff:127.0.0.1]"):
            exchange = FetchRequest(f"http://{HOST}/", proxy=f"{scheme}://{host}:{proxy.port}", guard_proxy=True)
            with pytest.raises(BlockedAddress, match="the proxy"):
                await client.fetch(exchange)
        assert proxy.asked == []


async def test_a_proxy_that_is_not_there(client: HttpClient) -> None:
    """Nobody listens on port 1; the name does not exist."""
    for proxy in ("socks5://127.0.0.1:1", "http://127.0.0.1:1", "http://nowhere.test:8080"):
        with pytest.raises(ProxyFailed):
            await client.fetch(FetchRequest(f"https://{HOST}/", proxy=proxy))
        with pytest.raises(ProxyFailed):
            await client.fetch(FetchRequest(f"http://{HOST}/", proxy=proxy))


@pytest.mark.parametrize("proxy", ["", "127.0.0.1:8080", "ftp://p.test", "http://", "http://p.test:x"])
async def test_what_is_no_proxy_is_refused(client: HttpClient, proxy: str) -> None:
    """Before anything is sent."""
    with pytest.raises(BadInput):
        await client.fetch(FetchRequest(f"http://{HOST}/", proxy=proxy))


PROXY_HOST = "secure-proxy.test"


def tls_server(chain: Chain) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain.certificate, chain.key)
    return context


@asynccontextmanager
async def secure_client(authority: Authority) -> AsyncIterator[HttpClient]:
    """A client that finds the site and the proxy."""
    names = {HOST: "127.0.0.1", PROXY_HOST: "127.0.0.1"}
    client = HttpClient(Resolver(overrides=names), extra_ca=str(authority.ca), timeouts=Timeouts(connect=2.0))
    try:
        yield client
    finally:
        await client.close()
        assert client.open_connections == 0


@pytest.mark.parametrize("secure", [False, True])
async def test_a_proxy_that_speaks_tls(authority: Authority, nginx: Nginx, secure: bool) -> None:
    """Requests for http URLs in the absolute form, tunnels for https URLs; both get password and headers."""
    proxy = ForwardingProxy(password="Basic dTpzZWNyZXQ=", tls=tls_server(authority.issue(PROXY_HOST)))
    async with run_forwarding(proxy), secure_client(authority) as client:
        url = f"https://{HOST}:{nginx.tls_port}/" if secure else f"http://127.0.0.1:{nginx.port}/"
        text = f"https://u:secret@{PROXY_HOST}:{proxy.port}\nX-Proxy-Country: de"
        exchange = FetchRequest(url, proxy=text, allow_private=True)
        first = await client.fetch(exchange)
        second = await client.fetch(exchange)
        assert (first.status, first.body, second.body) == (200, b"behind", b"behind")
        assert second.reused == secure  # the proxy of the tests keeps only tunnels
        assert {one.headers["x-proxy-country"] for one in proxy.asked} == {"de"}
        assert len(proxy.asked) == (1 if secure else 2)
        with pytest.raises(ProxyFailed) as caught:
            await client.fetch(FetchRequest(url, proxy=text.replace("secret", "wrong"), allow_private=True))
        assert not caught.value.for_target
        assert PROXY_HOST not in str(caught.value)


@pytest.mark.parametrize("fault", ["other name", "unknown authority", "plain", "closes", "stalls"])
async def test_a_proxy_whose_tls_fails(authority: Authority, nginx: Nginx, tmp_path: Path, fault: str) -> None:
    """It is the proxy's failure, without its name, and no connection is left."""
    chain = {
        "other name": lambda: authority.issue("other.test"),
        "unknown authority": lambda: Authority(tmp_path).issue(PROXY_HOST),
    }.get(fault, lambda: None)()
    proxy = ForwardingProxy(tls=tls_server(chain) if chain else None)
    steps: dict[str, list[Step]] = {f"{HOST}:{nginx.tls_port}": [b"" if fault == "closes" else Stall()]}
    async with run_bad_server(steps, tls=tls_server(authority.issue(PROXY_HOST))) as bad, run_forwarding(proxy):
        port = bad.port if fault in ("closes", "stalls") else proxy.port
        exchange = FetchRequest(
            f"https://{HOST}:{nginx.tls_port}/", proxy=f"https://u:secret@{PROXY_HOST}:{port}", allow_private=True
        )
        async with secure_client(authority) as client:
            with pytest.raises(FetchError) as caught:
                await asyncio.wait_for(client.fetch(exchange), 30)
    assert isinstance(caught.value, ConnectTimeout if fault in ("plain", "stalls") else ProxyFailed)
    for secret in (PROXY_HOST, "secret", str(port)):
        assert secret not in str(caught.value)
