"""A hit is charged for a moment: a request leaves when the client says so, and not at all when that is too late."""

import asyncio
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from gossamer.errors import NotSentInTime
from gossamer.fetch.client import HttpClient, TimeoutWatch
from gossamer.fetch.exchange import FetchRequest
from gossamer.net.resolve import Resolver
from tests.servers.certificates import Authority, Chain

HOST = "timed.test"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


class TimedServer:
    """Answers the requests of one connection, in a thread: the client's event loop may stand still meanwhile."""

    def __init__(self, listener: socket.socket, chains: list[Chain], handshake_seconds: float, requests: int) -> None:
        """`chains`: certificates of a TLS proxy, if any, and of the site. `handshake_seconds`: time that it takes
        before it answers a TLS handshake. `requests`: the most that it answers."""
        self._listener = listener
        self._chains = chains
        self._handshake_seconds = handshake_seconds
        self._requests = requests
        self.port = listener.getsockname()[1]
        self.second = threading.Event()
        """Set when the second request has arrived."""

    def run(self) -> None:
        with ExitStack() as closing:
            sock, _ = self._listener.accept()
            closing.callback(sock.close)
            wire = _Wire(sock)
            for number, chain in enumerate(self._chains):
                time.sleep(self._handshake_seconds)
                wire = _TlsWire(wire, chain)
                if number < len(self._chains) - 1:  # it is the proxy's
                    wire.read_head()
                    wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
            for number in range(self._requests):
                wire.read_head()
                wire.send(PAGE)
                if number == 1:
                    self.second.set()
            with suppress(ConnectionResetError):  # so the client may close, too
                while sock.recv(65536):
                    pass


class _Wire:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def receive(self) -> bytes:
        return self._sock.recv(65536)

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def read_head(self) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.receive()


class _TlsWire(_Wire):
    """TLS over another wire, which may be TLS itself."""

    def __init__(self, below: _Wire, chain: Chain) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain.certificate, chain.key)
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._retried(self._tls.do_handshake)

    def receive(self) -> bytes:
        return self._retried(lambda: self._tls.read(65536))

    def send(self, data: bytes) -> None:
        self._retried(lambda: self._tls.write(data))

    def _retried(self, act: Callable[[], Any]) -> Any:
        while True:
            try:
                done = act()
            except ssl.SSLWantReadError:
                self._flush()
                data = self._below.receive()
                self._incoming.write(data) if data else self._incoming.write_eof()
            else:
                self._flush()
                return done

    def _flush(self) -> None:
        if data := self._outgoing.read():
            self._below.send(data)


@contextmanager
def serving(chains: list[Chain], *, handshake_seconds: float = 0.0, requests: int = 2) -> Iterator[TimedServer]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = TimedServer(listener, chains, handshake_seconds, requests)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        yield server
        thread.join(60)
        assert not thread.is_alive()


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", ["plain", "tls", "tls proxy", "tls through a tls proxy"])
def test_a_request_does_not_wait_for_the_other_work_of_the_event_loop(how: str, loop: str, tmp_path: Path) -> None:
    """After a stall, an event loop has much to do at once. What is written into a buffer goes out after all of that,
    and then the check whether it is too late for its hit was made too early."""
    authority = Authority(tmp_path)
    proxied, secure = "proxy" in how, how.startswith("tls") and how != "tls proxy"
    chains = [authority.issue(name) for name, used in (("proxy.test", proxied), (HOST, secure)) if used]
    with serving(chains) as server:

        async def main() -> bool:
            client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}), extra_ca=str(authority.ca))
            url = f"{'https' if secure else 'http'}://{HOST}:{server.port}/"
            proxy = f"https://proxy.test:{server.port}" if proxied else None
            request = FetchRequest(url, proxy=proxy)
            assert (await client.fetch(request)).body == b"hi"
            fetching = asyncio.create_task(client.fetch(request))  # its first step comes before the callback below
            arrived: list[bool] = []
            asyncio.get_running_loop().call_soon(lambda: arrived.append(server.second.wait(20)))
            assert (await fetching).reused
            await client.close()
            return arrived[0]

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            assert runner.run(main()), "the request left only after the event loop's other work"


LONG_SECONDS = 0.6
IN_TIME_SECONDS = 0.15


def connecting(
    folder: Path, loop: str, *, stall_seconds: float = 0.0, slow_server: bool = False, allowance: float = 0.0
) -> NotSentInTime | None:
    """Fetch a page over a new TLS connection, and return the error of a request that was not sent in time.
    `stall_seconds`: time for which the event loop stands still while it connects. `slow_server`: the server takes
    LONG_SECONDS for the handshake."""
    authority = Authority(folder)
    pause, answers = LONG_SECONDS if slow_server else 0.0, int(allowance > LONG_SECONDS and slow_server)
    with serving([authority.issue(HOST)], handshake_seconds=pause, requests=answers) as server:

        async def main() -> NotSentInTime | None:
            client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}), extra_ca=str(authority.ca))
            due = time.monotonic() + IN_TIME_SECONDS
            request = FetchRequest(f"https://{HOST}:{server.port}/", send_by=due, connect_allowance=allowance)
            fetching = asyncio.create_task(client.fetch(request))
            asyncio.get_running_loop().call_soon(time.sleep, stall_seconds)  # after the first step of the fetch
            try:
                await fetching
            except NotSentInTime as error:
                return error
            else:
                return None
            finally:
                await client.close()

        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            return runner.run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_stall_of_this_process_is_no_slow_server(loop: str, tmp_path: Path) -> None:
    """Or requests to the host could be sent later from then on, and after the next stall all at once."""
    for allowance in (0.0, 10.0):
        error = connecting(tmp_path, loop, stall_seconds=LONG_SECONDS, allowance=allowance)
        assert error is not None, "a request that its process has held up was sent"
        assert not error.connecting
        assert error.connect_seconds < LONG_SECONDS, "the stall counts as connecting"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_server_that_connects_slowly_may_take_that_time_and_no_more(loop: str, tmp_path: Path) -> None:
    error = connecting(tmp_path, loop, slow_server=True)
    assert error is not None
    assert error.connecting
    assert error.connect_seconds >= LONG_SECONDS / 2
    assert connecting(tmp_path, loop, slow_server=True, allowance=10.0) is None
    error = connecting(tmp_path, loop, slow_server=True, allowance=0.1)
    assert error is not None
    assert error.connecting


def test_a_process_that_stands_still_while_it_sends_tells_by_how_much(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the last check and the bytes is nothing but the process itself, which its machine may stop."""
    send = TimeoutWatch.send

    def stopped(*arguments: Any) -> Any:
        time.sleep(2 * IN_TIME_SECONDS)
        return send(*arguments)

    monkeypatch.setattr(TimeoutWatch, "send", stopped)
    caplog.set_level(logging.WARNING)
    with serving([], requests=2) as server:

        async def main() -> None:
            client = HttpClient(Resolver(overrides={"*": "127.0.0.1"}))
            for late in (False, True):
                due = time.monotonic() + (IN_TIME_SECONDS if late else 60)
                assert (await client.fetch(FetchRequest(f"http://{HOST}:{server.port}/", send_by=due))).body == b"hi"
            await client.close()

        asyncio.run(main())
    [line] = caplog.messages
    assert line.startswith(f"sent_late http://{HOST}:{server.port}/ by 0.")
