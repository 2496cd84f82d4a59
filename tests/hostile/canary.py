"""Listens where no crawler may go, and remembers who came."""

import contextlib
import socket
import threading
from collections.abc import Collection
from types import TracebackType
from typing import NamedTuple, Self

_WAIT_SECONDS = 5.0
_PAGE = b"<html><p>You have reached the canary.</p></html>"
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"


class Visit(NamedTuple):
    """A connection: to which address and port, and the first line that came."""

    address: str
    port: int
    line: str


class Canary:
    """On every address of this machine, at a free port and, where they are free too, at 80 and 443.

    Answers with a page, so that a crawler which comes here takes it for a success. In a network where every address is
    local, this is every address. `allowed`: those that may be connected to; they are noted in `welcome` instead.
    """

    def __init__(self, *, allowed: Collection[str] = (), more_ports: Collection[int] = ()) -> None:
        self.visits: list[Visit] = []
        self.welcome: list[Visit] = []
        self.ports: list[int] = []
        self.port = 0
        self._allowed = frozenset(allowed)
        self._sockets: list[socket.socket] = []
        self._more_ports = more_ports

    def __enter__(self) -> Self:
        self.port = self._listen(0)
        for port in self._more_ports:
            with contextlib.suppress(OSError):
                self._listen(port)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for listening in self._sockets:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)
            listening.close()

    def proven(self, addresses: Collection[str]) -> list[str]:
        """Connect to each of these ourselves: those at which the canary did not notice. Forgets that we came."""
        unseen = []
        for address in addresses:
            for port in self.ports:
                before = len(self.visits)
                try:
                    with socket.create_connection((address, port), timeout=_WAIT_SECONDS) as connection:
                        connection.sendall(b"GET /ours HTTP/1.0\r\n\r\n")
                        connection.recv(1000)
                except OSError:
                    unseen.append(f"{address}:{port}")
                    continue
                if len(self.visits) == before:
                    unseen.append(f"{address}:{port}")
        self.visits.clear()
        return unseen

    def _listen(self, port: int) -> int:
        listening = socket.create_server(("0.0.0.0", port), backlog=512)
        self._sockets.append(listening)
        port = listening.getsockname()[1]
        with contextlib.suppress(OSError):  # no IPv6 here
            self._sockets.append(socket.create_server(("::", port), family=socket.AF_INET6, backlog=512))
        for each in self._sockets[-2:]:
            if each.getsockname()[1] == port:
                threading.Thread(target=self._serve, args=(each,), daemon=True).start()
        self.ports.append(port)
        return port

    def _serve(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._receive(connection)

    def _receive(self, connection: socket.socket) -> None:
        # Noted before anything is read: the connection is the crime.
        address, port = connection.getsockname()[:2]
        notes = self.welcome if address in self._allowed else self.visits
        notes.append(Visit(address, port, ""))
        connection.settimeout(_WAIT_SECONDS)
        line = connection.recv(4096).split(b"\r\n", 1)[0].decode("latin-1")
        notes[-1] = Visit(address, port, line)
        connection.sendall(_ANSWER % (len(_PAGE), _PAGE))
