"""TLS servers as they are: old ones are read as browsers read them, and every failure's advice names its own cause."""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gossamer.errors import ConnectFailed, FetchError, TlsFailed
from gossamer.fetch.client import HttpClient
from gossamer.fetch.exchange import FetchRequest
from gossamer.net.resolve import Resolver
from gossamer.policy.words import cause_advice, explain
from tests.servers.certificates import Authority, Chain
from tests.servers.old_tls import run_old_tls_server

HOST = "real.test"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
Refusal = Callable[[ssl.SSLObject, str, ssl.SSLContext], int]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


def context(chain: Chain, *, ciphers: str = "", newest: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    """A server's. With `ciphers`: those of TLS 1.2, whatever is thought of them today."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if ciphers:
        made.set_ciphers(f"{ciphers}:@SECLEVEL=0")
        made.maximum_version = ssl.TLSVersion.TLSv1_2
    if newest is not None:
        made.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        made.maximum_version = newest
    made.load_cert_chain(chain.certificate, chain.key)
    return made


@contextlib.contextmanager
def tls_server(made: ssl.SSLContext, ciphers: list[str] | None = None) -> Iterator[int]:
    """A server with blocking sockets: unlike asyncio's, they send alerts. `ciphers` gets what was agreed on."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # shut down
            with made.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as secure:
                try:
                    secure.do_handshake()
                    secure.recv(9999)
                    secure.sendall(PAGE)
                except OSError:
                    # What has arrived must be read, or the system sends a reset, which overtakes the alert.
                    with contextlib.suppress(OSError):
                        secure.shutdown(socket.SHUT_WR)
                        while os.read(secure.fileno(), 9999):
                            pass
                chosen = secure.cipher()
                if ciphers is not None and chosen is not None:
                    ciphers.append(chosen[0])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        listener.close()


async def get(port: int, authority: Authority, *, insecure: bool = False, host: str = HOST) -> bytes:
    client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}), extra_ca=str(authority.ca))
    try:
        return (await client.fetch(FetchRequest(f"https://{host}:{port}/", insecure=insecure))).body
    finally:
        await client.close()
        assert client.open_connections == 0


@pytest.mark.parametrize("insecure", [False, True])
async def test_a_server_without_secure_renegotiation_is_read(authority: Authority, insecure: bool) -> None:
    async with run_old_tls_server(authority.issue(HOST)) as port:
        assert await get(port, authority, insecure=insecure) == b"old"


@pytest.mark.parametrize(
    "cipher",
    [
        "AES128-GCM-SHA256", "AES256-GCM-SHA384", "AES128-SHA", "AES256-SHA", "ECDHE-RSA-AES128-SHA",
        "ECDHE-RSA-AES256-SHA", "ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305",
    ],
)  # fmt: skip
async def test_a_server_with_one_of_chromiums_ciphers_is_read(authority: Authority, cipher: str) -> None:
    server_context = context(authority.issue(HOST, rsa_bits=2048), ciphers=cipher)
    with tls_server(server_context) as port:
        assert await get(port, authority) == b"hi"


async def test_a_better_cipher_is_preferred(authority: Authority) -> None:
    """A server that leaves the choice to the client gets forward secrecy."""
    server_context = context(authority.issue(HOST, rsa_bits=2048), ciphers="ALL")
    server_context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    chosen: list[str] = []
    with tls_server(server_context, chosen) as port:
        await get(port, authority)
    assert chosen == ["ECDHE-RSA-AES256-GCM-SHA384"]


def refusing(chain: Chain, alert: int) -> ssl.SSLContext:
    """A server that refuses every name with this alert."""
    made = context(chain)
    refuse: Refusal = lambda connection, name, old: alert  # noqa: E731
    made.sni_callback = refuse  # type: ignore[assignment]
    return made


def wanting_certificates(authority: Authority, newest: ssl.TLSVersion) -> ssl.SSLContext:
    made = context(authority.issue(HOST), newest=newest)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.verify_mode = ssl.CERT_REQUIRED
    made.load_verify_locations(authority.ca)
    return made


def stranger(folder: Path) -> Authority:
    """Another authority, which nobody trusts."""
    other = folder / "other"
    other.mkdir()
    return Authority(other)


Make = Callable[[Authority, Path], ssl.SSLContext]
CAUSES: dict[str, tuple[Make, str]] = {
    "expired": (lambda us, _: context(us.issue(HOST, expired=True)), "has expired"),
    "not valid yet": (lambda us, _: context(us.issue(HOST, early=True)), "valid from a later time on"),
    "another name": (lambda us, _: context(us.issue("other.test")), "that of other names"),
    "unknown authority": (lambda us, folder: context(stranger(folder).issue(HOST)), "not trusted here"),
    "self-signed": (lambda us, folder: context(stranger(folder).own_chain()), "signed its certificate itself"),
    "a weak key": (lambda us, _: context(us.issue(HOST, rsa_bits=1024), ciphers="ALL"), "too weak"),
    "an old version": (
        lambda us, _: context(us.issue(HOST), ciphers="ALL", newest=ssl.TLSVersion.TLSv1_1), "before 1.2"
    ),
    "no common cipher": (
        lambda us, _: context(us.issue(HOST, rsa_bits=2048), ciphers="CAMELLIA128-SHA"), "has no cipher, curve"
    ),
    "a certificate of the client": (
        lambda us, _: wanting_certificates(us, ssl.TLSVersion.TLSv1_3), "and Gossamer sends none"
    ),
    "a certificate of the client, TLS 1.2": (
        lambda us, _: wanting_certificates(us, ssl.TLSVersion.TLSv1_2), "or wants a certificate of the client"
    ),
    "an unknown name": (
        lambda us, _: refusing(us.issue(HOST), ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME), "no site of this name"
    ),
    "an error of the server": (
        lambda us, _: refusing(us.issue(HOST), ssl.ALERT_DESCRIPTION_INTERNAL_ERROR), "error of its own"
    ),
    "another protocol": (lambda us, _: refusing(us.issue(HOST), 120), "neither HTTP/1.1 nor HTTP/2"),
    "another alert": (
        lambda us, _: refusing(us.issue(HOST), ssl.ALERT_DESCRIPTION_ACCESS_DENIED), "refused the handshake"
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")  # old versions, of the server
@pytest.mark.parametrize(("make", "words"), CAUSES.values(), ids=CAUSES)
async def test_the_advice_names_the_cause_of_the_failure(
    authority: Authority, tmp_path: Path, make: Make, words: str
) -> None:
    """And no other one."""
    with tls_server(make(authority, tmp_path)) as port, pytest.raises(TlsFailed) as caught:
        await get(port, authority)
    for text in (caught.value.detail, str(caught.value)):
        advice = cause_advice("tls", text)
        assert words in advice, text
        alike = {"has no cipher, curve", "or wants a certificate of the client"}  # one alert for both
        others = {other for _, other in CAUSES.values()} - {words} - (alike if words in alike else set())
        assert not [other for other in others if other in advice]
    assert caught.value.detail.startswith(HOST)


@asynccontextmanager
async def hanging_up(farewell: bytes = b"") -> AsyncIterator[int]:
    """A server that closes each connection when the first bytes have come."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(9999)
            writer.write(farewell)
            writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def test_what_is_no_tls_is_said_to_be_none(authority: Authority) -> None:
    async with hanging_up(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        with pytest.raises(TlsFailed) as caught:
            await get(port, authority)
    assert "does not speak TLS" in cause_advice("tls", str(caught.value))


async def test_a_handshake_that_is_cut_off_is_told_from_a_server_that_is_down(authority: Authority) -> None:
    async with hanging_up() as port:
        with pytest.raises(ConnectFailed) as caught:
            await get(port, authority)
    error: FetchError = caught.value
    assert "TLS handshake" in error.detail
    assert cause_advice("connect", str(error)) != explain("connect").advice


def test_a_word_in_the_name_of_a_host_is_no_cause() -> None:
    assert cause_advice("tls", "alert-expired.mismatch.test: something else") == explain("tls").advice
    assert "expired" not in explain("tls").advice
