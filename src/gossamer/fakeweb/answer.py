"""Answers of the fake web, as values, and their form on the wire. A hostile page is one more value, or one more
`Ending`.

Fixed: the fields, the tags of the steps and the values of `Ending`. Processes send answers to each other as JSON (the
control host's `POST /mount`), and the package gossamer-fakeweb builds them.
"""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from http import HTTPStatus
from typing import Protocol

import msgspec


class Send(msgspec.Struct, frozen=True, tag="send"):
    """Send `data` `times` times (0: until the client has left), with a pause of `pause_seconds` after each."""

    data: bytes
    times: int = 1
    pause_seconds: float = 0.0


class Silence(msgspec.Struct, frozen=True, tag="silence"):
    """Send nothing until the client leaves."""


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    """End the connection with a TCP reset instead of closing it in good order. Must be the last step."""


Step = Send | Silence | Reset


class Wire(Protocol):
    """Connection on which a script is performed."""

    def write(self, data: bytes) -> None:
        """Send the data, or keep it until it can be sent."""

    async def drained(self) -> None:
        """Return when the kernel has taken all that was written."""


async def perform(script: Sequence[Step], wire: Wire) -> bool:
    """Perform the steps in order. Returns whether the connection must be reset (True) or closed (False).

    The caller cancels this when the client has left."""
    for step in script:
        match step:
            case Send(data, times, pause_seconds):
                sent = 0
                while not times or sent < times:
                    wire.write(data)
                    sent += 1
                    await wire.drained()
                    await asyncio.sleep(pause_seconds)  # even 0 lets other tasks run
            case Silence():
                await asyncio.get_running_loop().create_future()  # never ends; the caller cancels it
            case Reset():
                return True
    return False


class Ending(StrEnum):
    """Way in which the server ends an answer."""

    WHOLE = "whole"
    """Everything is sent; the connection may be used again."""
    REFUSE = "refuse"
    """Nothing is sent, the connection is reset. (Which host is meant is known only from the request, so a reset
    instead of an answer stands for a port without a listener.)"""
    RESET = "reset"
    """Headers and half of the body, then the connection is reset."""
    CUT = "cut"
    """Headers and half of the body, then the connection is closed in good order."""
    STALL = "stall"
    """Headers, then nothing until the client leaves."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `Content-Length` is added unless `headers` have it or Transfer-Encoding, or `raw` is set."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    """Sent as they are, in this order. A Content-Type is not added."""
    body: bytes = b""
    ending: Ending = Ending.WHOLE
    delay_ms: float = 0.0
    """Wait before it begins, on top of the web's `latency_ms`."""
    raw: bool = False
    """`body` is the whole answer, status line and headers included; the connection is closed after it."""
    script: tuple[Step, ...] = ()
    """Steps performed instead of sending `headers` and `body`; then the connection is closed."""


Mounts = Mapping[tuple[str, str], Answer | Sequence[Answer]]
"""Handmade answers by (host name, path with query). Of a sequence each request takes the next; the last one stays."""


def html(body: str | bytes, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return a page in UTF-8."""
    content = body.encode() if isinstance(body, str) else body
    return Answer(status=status, headers=(("Content-Type", "text/html; charset=utf-8"), *headers), body=content)


def plain(text: str, *, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer of plain text, as robots.txt is."""
    return Answer(status=status, headers=(("Content-Type", "text/plain; charset=utf-8"), *headers), body=text.encode())


def redirect(location: str, *, status: int = 302) -> Answer:
    """Return a redirect with a short page, as servers send it."""
    return html(f"<html><body>Moved to {location}</body></html>", status=status, headers=(("Location", location),))


def encode(answer: Answer, *, head_only: bool, close: bool) -> bytes:
    """Return the bytes that are sent before the answer ends as its `ending` says: all, half the body, only the headers,
    or none.

    `head_only`: the request's method is HEAD, so the body is left out. `close`: announce that the connection will be
    closed. Raises UnicodeEncodeError for headers beyond Latin-1.
    """
    if answer.ending is Ending.REFUSE:
        return b""
    body = answer.body
    if answer.raw:
        content = body
    else:
        content = _head(answer, len(body), close=close)
        if not head_only:
            content += body
    if answer.ending is Ending.WHOLE or head_only:
        return content
    if answer.ending is Ending.STALL:
        return content if answer.raw else content[: len(content) - len(body)]
    left_out = (len(body) + 1) // 2  # RESET, CUT
    return content[: len(content) - left_out]


_REASONS = {int(status): status.phrase for status in HTTPStatus}


def _head(answer: Answer, length: int, *, close: bool) -> bytes:
    """Return the status line and the headers. `length`: of the body."""
    lines = [f"HTTP/1.1 {answer.status} {_REASONS.get(answer.status, 'Unknown')}\r\nServer: fakeweb\r\n"]
    # True: no Content-Length is added. Answers of these statuses have no body (RFC 9110).
    has_length = answer.status < 200 or answer.status in (204, 304)
    for name, value in answer.headers:
        lines.append(f"{name}: {value}\r\n")
        has_length = has_length or name.lower() in ("content-length", "transfer-encoding")
    if not has_length:
        lines.append(f"Content-Length: {length}\r\n")
    if close:
        lines.append("Connection: close\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")
