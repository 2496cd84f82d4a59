"""Clients of a worker's metrics that are slow or many."""

import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gossamer.telemetry import metrics_server
from gossamer.telemetry.metrics import Metrics


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Port of a server that is less patient."""
    monkeypatch.setattr(metrics_server, "_SILENT_SECONDS", 0.2)
    monkeypatch.setattr(metrics_server, "_CONNECTIONS", 3)
    with Metrics().serve("127.0.0.1:0", option="--metrics") as address:
        yield int(address.rpartition(":")[2])


def status(port: int) -> int:
    """The status of an answer with metrics."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        client.request("GET", "/metrics")
        return client.getresponse().status
    finally:
        client.close()


@pytest.mark.parametrize("sent", [b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_a_client_that_stops_loses_its_connection(port: int, capfd: pytest.CaptureFixture[str], sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(sent)
        assert client.recv(100) == b""
    assert status(port) == 200
    assert capfd.readouterr().err == ""


def test_many_clients_have_few_threads(port: int) -> None:
    with ExitStack() as closing:
        clients = [closing.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60)) for _ in range(30)]
        assert all(client.recv(100) == b"" for client in clients)
    assert status(port) == 200
