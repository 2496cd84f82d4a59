"""Gates: ports that are hostile before a request can be made, at the connection or in the TLS handshake.

Gates may be added to KINDS freely. Fixed: their names (tests list what a crawler must record for each), and that they
listen on the loopback address on free ports.
"""

import asyncio
import socket
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb.answer import Reset, Send, Silence, Step, perform

_NO_LINGER = struct.pack("ii", 1, 0)
"""Value of SO_LINGER with which closing sends a reset (socket(7))."""
_HANDSHAKE_RECORD = b"\x16\x03\x03"
"""First bytes of a TLS record with a part of the handshake (RFC 8446, 5.1); its length follows."""
_FILLING_CONNECTIONS = 4
"""Connections that fill the queue of the deaf gate. Linux queues one more than `listen` asks for; more do no harm."""


class GateKind(NamedTuple):
    """Behaviour of a port towards a client that connects."""

    about: str
    """Description for people."""
    script: tuple[Step, ...]
    """Steps performed on each connection, which is then closed."""
    scheme: str = "http"
    """Scheme of the URL with which a crawler is sent here."""
    awaits: bool = False
    """True: the script begins when the client has sent something; False: at once."""
    deaf: bool = False
    """True: the queue of connections is full, so the kernel accepts no client."""


KINDS: Mapping[str, GateKind] = {
    "gate-reset": GateKind("resets every connection", (Reset(),)),
    "gate-closed": GateKind("hangs up on every connection", ()),
    "gate-silent": GateKind("accepts and does nothing", (Silence(),)),
    "gate-deaf": GateKind("does not even accept", (), deaf=True),
    "gate-early": GateKind(
        "answers before it was asked", (Send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n<p>"), Silence())
    ),
    "gate-flood": GateKind("sends noise without end before it was asked", (Send(b"\x00\xff" * 20_000, times=0),)),
    "gate-tls-silent": GateKind("no answer to a TLS greeting", (Silence(),), "https"),
    "gate-tls-reset": GateKind("a reset in the TLS handshake", (Reset(),), "https", awaits=True),
    "gate-tls-closed": GateKind("hangs up in the TLS handshake", (), "https", awaits=True),
    "gate-tls-plain": GateKind(
        "plain HTTP on a TLS port", (Send(b"HTTP/1.1 400 Bad Request\r\n\r\n"),), "https", awaits=True
    ),
    "gate-tls-alert": GateKind("a TLS alert", (Send(b"\x15\x03\x03\x00\x02\x02\x28"),), "https", awaits=True),
    "gate-tls-half": GateKind(
        "half a TLS greeting", (Send(_HANDSHAKE_RECORD + b"\x40\x00\x02\x00\x3f\xfc"), Silence()), "https", awaits=True
    ),
    "gate-tls-slow": GateKind(
        "a TLS greeting at a byte a second",
        (Send(_HANDSHAKE_RECORD + b"\x40\x00"), Send(b"\x02", times=0, pause_seconds=1.0)),
        "https",
        awaits=True,
    ),
    "gate-tls-noise": GateKind(
        "noise in the TLS handshake", (Send(_HANDSHAKE_RECORD * 9999, times=0),), "https", awaits=True
    ),
}


class Gates:
    """The ports of `KINDS` on one address, from `open` to `close`."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._servers: list[asyncio.Server] = []
        self._sockets: list[socket.socket] = []
        self._open: set[_Gate] = set()
        self.ports: dict[str, int] = {}
        """Port of each gate by its name; empty before `open`."""

    async def open(self) -> None:
        """Listen, on a free port for each gate. Raises `FakeWebFailed`."""
        loop = asyncio.get_running_loop()
        try:
            for name, kind in KINDS.items():
                if kind.deaf:
                    self.ports[name] = self._listen_deaf()
                    continue
                server = await loop.create_server(lambda kind=kind: _Gate(kind, self._open), self._address, 0)  # type: ignore[misc]
                self._servers.append(server)
                self.ports[name] = server.sockets[0].getsockname()[1]
        except OSError as error:
            raise FakeWebFailed(f"cannot open a port at {self._address}: {error.strerror}") from error

    def close(self) -> None:
        """Close all gates and their connections. May be called again."""
        for server in self._servers:
            server.close()
        for gate in list(self._open):
            gate.abort()
        for held in self._sockets:
            held.close()

    def _listen_deaf(self) -> int:
        """Return a port whose queue of connections this process fills itself and never empties."""
        listening = socket.socket()
        listening.bind((self._address, 0))
        listening.listen(0)
        self._sockets.append(listening)
        port = int(listening.getsockname()[1])
        for _ in range(_FILLING_CONNECTIONS):
            filling = socket.socket()
            filling.setblocking(False)
            filling.connect_ex((self._address, port))
            self._sockets.append(filling)
        return port


class _Gate(asyncio.Protocol):
    """One connection to a gate."""

    def __init__(self, kind: GateKind, open_gates: "set[_Gate]") -> None:
        self._kind = kind
        self._open = open_gates
        self._task: asyncio.Task[bool] | None = None
        self._unclogged: asyncio.Future[None] | None = None
        self._clogged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        self._open.add(self)
        if not self._kind.awaits:
            self._begin()

    def data_received(self, data: bytes) -> None:
        if self._task is None:
            self._begin()

    def pause_writing(self) -> None:
        self._clogged = True

    def resume_writing(self) -> None:
        self._clogged = False
        if self._unclogged is not None and not self._unclogged.done():
            self._unclogged.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open.discard(self)
        if self._task is not None:
            self._task.cancel()

    def write(self, data: bytes) -> None:
        """Implement `Wire`."""
        self._transport.write(data)

    async def drained(self) -> None:
        """Implement `Wire`."""
        if self._clogged:
            self._unclogged = asyncio.get_running_loop().create_future()
            await self._unclogged

    def abort(self) -> None:
        """End the connection with a TCP reset."""
        connected: Any = self._transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self._transport.abort()

    def _begin(self) -> None:
        """Start the script."""
        self._task = asyncio.get_running_loop().create_task(perform(self._kind.script, self))
        self._task.add_done_callback(self._performed)

    def _performed(self, task: "asyncio.Task[bool]") -> None:
        """End the connection as the script requires."""
        if task.cancelled():
            return
        if task.result():
            self.abort()
        else:
            self._transport.close()
