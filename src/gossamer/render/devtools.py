"""Client of the DevTools protocol over a browser's pipe: JSON messages, each of which ends with a zero byte.

The pipe opens no port, so no other program of this machine can steer the browser. A call that gets no answer in time
raises BrowserHung, and every call after the end of the pipe raises BrowserCrashed: no caller waits without end.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

import msgspec

from gossamer.errors import BrowserCrashed, BrowserHung, DevToolsRefused
from gossamer.model.json_codec import encode_value

CALL_SECONDS = 10.0
"""Longest wait for the answer to a call. Answers take milliseconds where the browser and its page are well."""
_READ_BYTES = 1 << 18
MESSAGE_BYTES = 256 << 20
"""Longest message that is read. The document of a page is cut long before; a longer message ends the browser."""

Handler = Callable[[str, dict[str, Any]], None]
"""Callback for the events of one session: the method and its parameters."""

_decoder = msgspec.json.Decoder()


class DevTools:
    """Connection to one browser. A session is the DevTools name of one attached tab; empty: the browser itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.WriteTransport) -> None:
        self._reader = reader
        self._writer = writer
        self._next_id = 0
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._handlers: dict[str, Handler] = {}
        self._reading = asyncio.get_running_loop().create_task(self._read())

    @property
    def closed(self) -> bool:
        """True: the browser has ended, or its pipe was closed."""
        return self._reading.done()

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

    async def close(self) -> None:
        """Close this end of the pipe, upon which the browser ends. Calls in progress fail. May be repeated."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading
        self._writer.close()

    def _write(self, method: str, session: str, parameters: dict[str, Any]) -> int:
        """Write a message and return its number."""
        if self.closed:
            raise BrowserCrashed("the browser has ended")
        self._next_id += 1
        message: dict[str, Any] = {"id": self._next_id, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        self._writer.write(encode_value(message) + b"\0")
        return self._next_id

    async def _read(self) -> None:
        """Read messages until the pipe ends."""
        parts: list[bytes] = []
        size = 0
        try:
            while data := await self._reader.read(_READ_BYTES):
                *ends, rest = data.split(b"\0")
                for end in ends:
                    self._receive(b"".join((*parts, end)))
                    parts, size = [], 0
                if rest:
                    parts.append(rest)
                    size += len(rest)
                    if size > MESSAGE_BYTES:
                        return
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
        text = json.dumps(json.loads(data.decode("utf-8", "replace")), ensure_ascii=False)
        return _decoder.decode(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
