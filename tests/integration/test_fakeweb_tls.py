"""The fake web over TLS: its certificates, sessions and failures."""

import socket
import ssl
from collections.abc import Iterator

import pytest

from gossamer.fakeweb import FakeWeb, How, WebSpec, html
from tests.integration.test_fakeweb import SPEC, request


@pytest.fixture(scope="module")
def secure() -> Iterator[FakeWeb]:
    with FakeWeb.start(SPEC, tls=True) as web:
        yield web


def shake_hands(web: FakeWeb, host: str | None, context: ssl.SSLContext) -> ssl.SSLSocket:
    connected = socket.create_connection(("127.0.0.1", web.port), timeout=60)
    try:
        return context.wrap_socket(connected, server_hostname=host)
    except BaseException:
        connected.close()
        raise


def test_every_host_has_a_certificate_of_its_own_that_verifies(secure: FakeWeb) -> None:
    context = ssl.create_default_context(cafile=str(secure.ca_path))
    secure.mount("handmade.test", "/", html("hello"))
    for host in [*secure.site.hosts(), "handmade.test"]:
        with shake_hands(secure, host, context) as connected:
            certificate = connected.getpeercert()
            assert certificate
            assert certificate["subjectAltName"] == (("DNS", host),)
            connected.sendall(request(host, "/", more="Connection: close\r\n"))
            assert connected.recv(15) == b"HTTP/1.1 200 OK"
    assert secure.url().startswith("https://")


def test_a_stranger_does_not_trust_it_and_unknown_hosts_are_refused(secure: FakeWeb) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(secure, "h0.site0.test", ssl.create_default_context())
    with pytest.raises(ssl.SSLError):
        shake_hands(secure, "nobody.test", ssl.create_default_context(cafile=str(secure.ca_path)))


def test_an_address_instead_of_a_name_gets_the_address_certificate(secure: FakeWeb) -> None:
    with shake_hands(secure, "127.0.0.1", ssl.create_default_context(cafile=str(secure.ca_path))) as connected:
        certificate = connected.getpeercert()
        assert certificate
        assert certificate["subjectAltName"] == (("IP Address", "127.0.0.1"),)


def test_a_session_can_be_resumed(secure: FakeWeb) -> None:
    context = ssl.create_default_context(cafile=str(secure.ca_path))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # its session is complete with the handshake
    with shake_hands(secure, "h0.site0.test", context) as connected:
        session = connected.session
    raw = socket.create_connection(("127.0.0.1", secure.port), timeout=60)
    with context.wrap_socket(raw, server_hostname="h0.site0.test", session=session) as connected:
        assert connected.session_reused


def test_errors_happen_under_tls_too() -> None:
    with FakeWeb.start(WebSpec(pages=5, reset=1.0), tls=True) as web:
        context = ssl.create_default_context(cafile=str(web.ca_path))
        with shake_hands(web, "site0.test", context) as connected:
            connected.sendall(request("site0.test", "/p/1"))
            with pytest.raises(OSError):  # noqa: PT012 - a reset or an end without close_notify, as the kernel has it
                while connected.recv(65536):
                    pass
                raise ConnectionResetError
        assert [record.how for record in web.log()] == [How.RESET]
