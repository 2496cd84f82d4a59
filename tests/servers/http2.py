"""Server that speaks HTTP/2 over TLS as a test tells it, odd frames included."""

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.exceptions import H2Error
from h2.settings import SettingCodes, Settings

from tests.servers.certificates import Chain
from tests.servers.program import require

Fields = dict[str, str]
Answer = Callable[["Conversation", int, Fields], None]


class Conversation(asyncio.Protocol):
    """One connection of a client."""

    def __init__(self, server: "Http2Server") -> None:
        self._server = server
        self.h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding="utf-8",
                validate_outbound_headers=False,
                normalize_outbound_headers=False,
            )
        )
        self.transport: asyncio.Transport
        self.bodies: dict[int, bytes] = {}
        self._unsent: dict[int, tuple[bytes, bool]] = {}

    def respond(
        self,
        stream: int,
        body: bytes = b"",
        status: str = "200",
        headers: Iterable[tuple[str, str]] = (),
        *,
        end: bool = True,
    ) -> None:
        """Send a response; `end`: it is the whole one."""
        self.h2.send_headers(stream, [(":status", status), *headers], end_stream=end and not body)
        if body:
            self._unsent[stream] = body, end
            self._send(stream)

    def write(self, raw: bytes) -> None:
        """Send bytes as they are, after what was said before."""
        self.flush()
        self.transport.write(raw)

    def flush(self) -> None:
        if data := self.h2.data_to_send():
            self.transport.write(data)

    def _send(self, stream: int) -> None:
        body, end = self._unsent.pop(stream)
        while body:
            room = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size)
            if room <= 0:
                self._unsent[stream] = body, end
                return
            self.h2.send_data(stream, body[:room], end_stream=end and len(body) <= room)
            body = body[room:]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._server.connections.append(self)
        if self._speaks_1():
            return
        permitted = {SettingCodes.MAX_CONCURRENT_STREAMS: self._server.streams}
        self.h2.local_settings = Settings(client=False, initial_values=permitted)
        self.h2.initiate_connection()
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._speaks_1():
            self._server.requests_by_1 += 1
            if self._server.by_1:
                self.transport.write(self._server.by_1)
            elif self._server.by_1 is not None:
                self.transport.close()
            return
        try:
            happened = self.h2.receive_data(data)
        except H2Error as error:
            self._server.faults.append(str(error))
            self.transport.close()
            return
        for event in happened:
            if isinstance(event, events.RequestReceived):
                fields = {str(name): str(value) for name, value in event.headers}
                self._server.requests.append(fields)
                self._server.in_progress += 1
                self._server.most_at_once = max(self._server.most_at_once, self._server.in_progress)
                self.bodies[event.stream_id] = b""
                if event.stream_ended is not None or fields[":path"] == self._server.early:
                    self._server.answer(self, event.stream_id, fields)
            elif isinstance(event, events.DataReceived):
                self.bodies[event.stream_id] += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                if event.stream_ended is not None:
                    self._server.answer(self, event.stream_id, {"body": self.bodies[event.stream_id].decode()})
            elif isinstance(event, events.WindowUpdated):
                for stream in list(self._unsent):
                    self._send(stream)
            elif isinstance(event, events.StreamReset):
                self._unsent.pop(event.stream_id, None)
                self._server.resets.append(event.error_code)
        self.flush()

    def _speaks_1(self) -> bool:
        """Whether both sides agreed on HTTP/1.1. If on nothing, the server speaks HTTP/2."""
        return self.transport.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.lost += 1


class Http2Server:
    """A running one, and what clients did."""

    def __init__(self, answer: Answer, streams: int, by_1: bytes | None) -> None:
        self.answer = answer
        self.streams = streams
        self.by_1 = by_1
        self.early = ""
        """Path of requests that are answered before their body has come."""
        self.requests_by_1 = 0
        self.port = 0
        self.connections: list[Conversation] = []
        self.requests: list[Fields] = []
        self.resets: list[object] = []
        self.faults: list[str] = []
        self.lost = 0
        self.in_progress = 0
        self.most_at_once = 0


def server_context(chain: Chain, versions: Iterable[str]) -> ssl.SSLContext:
    """A server's TLS that speaks these versions of HTTP, and ends the handshake with an alert for others."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(chain.certificate, chain.key)
    made.set_alpn_protocols(list(versions))
    return made


@asynccontextmanager
async def run_http2(
    chain: Chain,
    answer: Answer,
    *,
    versions: Iterable[str] = ("h2",),
    streams: int = 100,
    by_1: bytes | None = None,
) -> AsyncIterator[Http2Server]:
    """Run a server in this event loop. `answer` is called with each request. `by_1`: the answer to requests by
    HTTP/1.1; empty: it hangs up; None: it says nothing."""
    server = Http2Server(answer, streams, by_1)
    listening = await asyncio.get_running_loop().create_server(
        lambda: Conversation(server), "127.0.0.1", 0, ssl=server_context(chain, versions)
    )
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for conversation in server.connections:
            conversation.transport.abort()
        await listening.wait_closed()


@contextmanager
def run_alpn_server(chain: Chain, version: str) -> Iterator[int]:
    """Run a server of OpenSSL, which ends the handshake with an alert unless this version is offered. It sends back
    each line reversed."""
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    sock.close()
    process = subprocess.Popen(
        [require("openssl"), "s_server", "-accept", f"127.0.0.1:{port}", "-cert", chain.certificate, "-key", chain.key,
         "-alpn", version, "-rev"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        while b"ACCEPT" not in process.stdout.readline():
            assert process.poll() is None
        yield port
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
