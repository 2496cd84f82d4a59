"""The proxy of the chaos runs: what a client at its end sees of each thing it does."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.tcp_proxy import Link, Network
from tests.servers.valkey import standalone

SHORT = 0.2


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with standalone(tcp=True) as server, Network("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
def link(network: Network) -> Link:
    return network.link()


def connect(link: Link) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", link.port), timeout=60)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client


def ping(client: socket.socket) -> bytes:
    client.sendall(b"PING\r\n")
    return client.recv(100)


def silent(client: socket.socket) -> bool:
    """Nothing comes for a while."""
    client.settimeout(SHORT)
    try:
        return client.recv(100) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(60)


def over(client: socket.socket) -> bool:
    try:
        return not ping(client)
    except ConnectionError:
        return True


def test_it_passes_on_what_is_said(link: Link) -> None:
    with connect(link) as client:
        assert ping(client) == b"+PONG\r\n"
        value = b"x" * 300_000
        client.sendall(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$300000\r\n" + value + b"\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")
        expected = b"+OK\r\n$300000\r\n" + value + b"\r\n"
        found = b""
        while len(found) < len(expected):
            found += client.recv(65536)
        assert found == expected


def test_slow_takes_longer_each_way(link: Link) -> None:
    with connect(link) as client:
        link.slow(0.1)
        began = time.monotonic()
        assert ping(client) == b"+PONG\r\n"
        assert time.monotonic() - began > 0.19
        link.slow(0)
        assert ping(client) == b"+PONG\r\n"


def test_stalled_says_nothing_until_it_resumes(link: Link) -> None:
    with connect(link) as old:
        assert ping(old) == b"+PONG\r\n"
        link.stall()
        with connect(link) as new:
            for client in (old, new):
                client.sendall(b"PING\r\n")
                assert silent(client)
            link.resume()
            assert [client.recv(100) for client in (old, new)] == [b"+PONG\r\n"] * 2


def test_cut_ends_connections_and_takes_new_ones(link: Link, network: Network) -> None:
    other = network.link()
    with connect(link) as old, connect(other) as another:
        assert ping(old) == ping(another) == b"+PONG\r\n"
        link.cut()
        assert over(old)
        assert ping(another) == b"+PONG\r\n"
    with connect(link) as new:
        assert ping(new) == b"+PONG\r\n"


def test_parted_takes_nobody(link: Link) -> None:
    with connect(link) as old:
        assert ping(old) == b"+PONG\r\n"
        link.part()
        assert over(old)
        with connect(link) as new:
            assert over(new)
    link.rejoin()
    with connect(link) as new:
        assert ping(new) == b"+PONG\r\n"


def test_half_open_swallows_what_is_said_on_old_connections(link: Link) -> None:
    with connect(link) as old:
        assert ping(old) == b"+PONG\r\n"
        link.half_open()
        old.sendall(b"PING\r\n")
        assert silent(old)
        with connect(link) as new:
            assert ping(new) == b"+PONG\r\n"
        assert silent(old)
