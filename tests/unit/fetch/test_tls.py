"""Sessions resumed: offered to the same server only, read no more often than needed, bounded."""

import ssl
from pathlib import Path

import pytest

from gossamer.fetch.tls import ClientContext, TlsContexts
from tests.servers.certificates import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Whom the client trusts."""
    return Authority(tmp_path)


def serve(authority: Authority, host: str) -> ssl.SSLContext:
    """A server for `host`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    chain = authority.issue(host)
    context.load_cert_chain(chain.certificate, chain.key)
    return context


def connect(context: ClientContext, server_context: ssl.SSLContext, host: str) -> ssl.SSLObject:
    """Shake hands in memory and say hello, with which a TLS 1.3 server sends its tickets."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, server]
    while waiting:
        side = waiting.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(side)
    server.write(b"hello")
    assert client.read(5) == b"hello"
    return client


def test_a_session_is_resumed_and_not_read_again(authority: Authority) -> None:
    """By the server it came from."""
    context = TlsContexts(extra_ca=str(authority.ca)).get(insecure=False)
    server = serve(authority, "a.test")
    reads = context.reads_left
    reused = []
    for _ in range(3):
        connection = connect(context, server, "a.test")
        context.remember("a.test", connection)
        reused.append(connection.session_reused)
    assert reused == [False, True, True]
    assert (len(context._sessions), reads - context.reads_left) == (1, 1)


def test_a_session_is_offered_to_its_own_server_only(authority: Authority) -> None:
    """And a server that does not know it makes a new one."""
    context = TlsContexts(extra_ca=str(authority.ca)).get(insecure=False)
    context.remember("a.test", connect(context, serve(authority, "a.test"), "a.test"))
    other = connect(context, serve(authority, "b.test"), "b.test")
    assert not other.session_reused
    context.remember("b.test", other)
    assert len(context._sessions) == 2
    restarted = serve(authority, "a.test")  # with keys of its own for its tickets
    connection = connect(context, restarted, "a.test")
    assert not connection.session_reused
    context.remember("a.test", connection)
    assert connect(context, restarted, "a.test").session_reused


def test_no_more_sessions_are_read_than_allowed(authority: Authority) -> None:
    """Where reading one costs memory for ever; connecting goes on without."""
    context = TlsContexts(extra_ca=str(authority.ca)).get(insecure=False)
    context.reads_left = 1
    for host in ("a.test", "b.test"):
        server = serve(authority, host)
        context.remember(host, connect(context, server, host))
        assert connect(context, server, host).session_reused is (host == "a.test")
    assert (len(context._sessions), context.reads_left) == (1, 0)


def test_the_two_contexts_share_no_sessions(authority: Authority) -> None:
    """What was not verified must not be resumed as verified."""
    contexts = TlsContexts(extra_ca=str(authority.ca))
    server = serve(authority, "a.test")
    insecure = contexts.get(insecure=True)
    insecure.remember("a.test", connect(insecure, server, "a.test"))
    assert (len(insecure._sessions), len(contexts.get(insecure=False)._sessions)) == (1, 0)
    assert contexts.get(insecure=True) is insecure
