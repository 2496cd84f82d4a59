"""Client of the DevTools protocol over a browser's pipe: JSON messages, each of which ends with a zero byte.

The pipe opens no port, so no other program of this machine can steer the browser. A call that gets no answer in time
raises BrowserHung, and every call after the end of the pipe raises BrowserCrashed: no caller waits without end.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Any, cast

import msgspec

from gossamer.errors import BrowserCrashed, BrowserHung, DevToolsRefused
from gossamer.model.json_codec import encode_value

CALL_SECONDS = 10.0
"""Longest wait for the answer to a call. Answers take milliseconds where the browser and its page are well."""
_READ_BYTES = 1 << 18
MESSAGE_BYTES = 64 << 20
"""Longest message that is read, unless documents may be longer. A page can make messages of any length, which would
take a multiple of that in memory."""
CHARACTER_BYTES = 6
"""Most bytes that one character of a document takes in a message."""

_FULL_BYTES = 4 << 20
"""Bytes that the browser has not read yet from which responses wait (`wait_for_room`). A larger value takes more memory
for a browser that is slow."""
_MOST_UNREAD_BYTES = 16 << 20
"""Bytes that are written nevertheless, by calls. Then the browser is taken for lost."""

Handler = Callable[[str, dict[str, Any]], None]
"""Callback for the events of one session: the method and its parameters."""

_decoder = msgspec.json.Decoder()
_HALF = re.compile(rb"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|(\\u[dD][89a-fA-F]..)", re.DOTALL)
"""Group: half of a character beyond U+FFFF, as JSON writes it. Before it: what looks like one, an escaped backslash and
both halves together."""


class CommandPipe(asyncio.BaseProtocol):
    """End of the pipe to a browser: knows whether the browser reads what is written."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._written_when_full = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Implement BaseProtocol."""
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.set_write_buffer_limits(high=_FULL_BYTES)

    def pause_writing(self) -> None:
        """Implement BaseProtocol."""
        self._room.clear()
        self._written_when_full = 0

    def resume_writing(self) -> None:
        """Implement BaseProtocol."""
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        """Implement BaseProtocol."""
        self._transport = None
        self._room.set()

    @property
    def unread_bytes(self) -> int:
        """Bytes that the browser has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def write(self, data: bytes) -> bool:
        """Write a message. Returns False, and writes nothing, if the browser has not read for too many bytes. Raises
        BrowserCrashed if the browser has ended."""
        if self._transport is None:
            raise BrowserCrashed("the browser has ended")
        if not self._room.is_set():
            self._written_when_full += len(data)
            if self._written_when_full > _MOST_UNREAD_BYTES:
                return False
        self._transport.write(data)
        return True

    async def wait_for_room(self) -> None:
        """Wait until the browser has read most of what was written, or has ended."""
        while not self._room.is_set():  # another one that waited may have filled the pipe again
            await self._room.wait()

    def close(self) -> None:
        """Close this end. What is not read yet is dropped, so that a browser that does not read holds nothing."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.abort()


class DevTools:
    """Connection to one browser. A session is the DevTools name of one attached tab; empty: the browser itself."""

    def __init__(self, reader: asyncio.StreamReader, pipe: CommandPipe, *, message_bytes: int = MESSAGE_BYTES) -> None:
        """`message_bytes`: longest message that is read. A longer one is skipped: its call or its request gets no
        answer, and only its page waits for it."""
        self._reader = reader
        self._pipe = pipe
        self._message_bytes = message_bytes
        self._next_id = 0
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._handlers: dict[str, Handler] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def closed(self) -> bool:
        """True: the browser has ended, or its pipe was closed."""
        return self._reading.done() or self._reading.cancelling() > 0

    def listen(self, session: str, handler: Handler) -> None:
        """Call `handler` for each event of a session. It must not raise."""
        self._handlers[session] = handler

    def forget(self, session: str) -> None:
        """Drop the events of a session from now on. May be repeated."""
        self._handlers.pop(session, None)

    async def call(
        self, method: str, *, session: str = "", seconds: float = CALL_SECONDS, **parameters: Any
    ) -> dict[str, Any]:
        """Call a method and return its result. Raises BrowserCrashed, BrowserHung, and DevToolsRefused where the
        browser answers with an error."""
        number = self._write(method, session, parameters)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(seconds):
                result: dict[str, Any] = await answer
                return result
        except TimeoutError:
            raise BrowserHung(f"no answer to {method} within {seconds:.3g} s") from None
        finally:
            self._calls.pop(number, None)

    def send(self, method: str, *, session: str = "", **parameters: Any) -> None:
        """Call a method whose answer does not matter. A browser that has ended is ignored."""
        with contextlib.suppress(BrowserCrashed):
            self._write(method, session, parameters)

    async def wait_for_room(self) -> None:
        """Wait until a large message may be sent: until the browser has read most of the others, or has ended."""
        await self._pipe.wait_for_room()

    async def close(self) -> None:
        """Close this end of the pipe, upon which the browser ends. Calls in progress fail. May be repeated."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._pipe.close()

    def _write(self, method: str, session: str, parameters: dict[str, Any]) -> int:
        """Write a message and return its number."""
        if self.closed:
            raise BrowserCrashed("the browser has ended")
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        if not self._pipe.write(encode_value(message) + b"\0"):
            self._reading.cancel()
            raise BrowserCrashed("the browser does not read what it is sent")
        return self._next_id

    async def _read(self) -> None:
        """Read messages until the pipe ends."""
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self._reader.read(_READ_BYTES):
                *ends, rest = data.split(b"\0")
                for end in ends:
                    if size + len(end) <= self._message_bytes:
                        self._receive(b"".join((*parts, end)))
                    parts, size = [], 0
                parts.append(rest)
                size += len(rest)
                if size > self._message_bytes:
                    parts.clear()
        except (OSError, msgspec.DecodeError, ValueError):
            return
        finally:
            self._fail_calls()

    def _receive(self, data: bytes) -> None:
        """Pass on one message: an answer, or an event."""
        message = _decode(data)
        if (number := message.get("id")) is not None:
            answer = self._calls.get(number)
            if answer is None or answer.done():
                return
            if error := message.get("error"):
                answer.set_exception(DevToolsRefused(str(error.get("message", error))))
            else:
                answer.set_result(message.get("result", {}))
        elif handler := self._handlers.get(message.get("sessionId", "")):
            handler(message["method"], message.get("params", {}))

    def _fail_calls(self) -> None:
        """Fail the calls in progress, and tell each session that its browser has ended."""
        for answer in self._calls.values():
            if not answer.done():
                answer.set_exception(BrowserCrashed("the browser has ended"))
        for handler in list(self._handlers.values()):
            handler("Inspector.detached", {"reason": "the browser has ended"})
        self._handlers.clear()


def _decode(data: bytes) -> Any:
    """Return a message. Texts of JavaScript may have half of a character beyond U+FFFF, which becomes U+FFFD: otherwise
    any page could end its browser, with the pages beside it."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        whole = _HALF.sub(lambda found: b"\\ufffd" if found[1] else found[0], data.decode("utf-8", "replace").encode())
        return _decoder.decode(whole)
