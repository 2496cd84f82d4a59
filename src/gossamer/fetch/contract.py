"""Check of the contract of a fetch backend: python -m gossamer.fetch.contract NAME

Each promise of `fetch/backend.py` is tried with servers of this program on 127.0.0.1, and the result is a line: `kept`,
or `broken` with what happened instead. Exit code: 0 all are kept; 1 one is broken; 2 there is no such fetcher.
"""

import asyncio
import gzip
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from gossamer.errors import (
    BadInput,
    BadResponse,
    BlockedAddress,
    ConnectFailed,
    ConnectionLost,
    DecodeBomb,
    DnsFailed,
    FetchError,
    FirstByteTimeout,
    HeadersTooLarge,
    IdleTimeout,
    NotSentInTime,
    TotalTimeout,
)
from gossamer.fetch.exchange import FetchRequest, FetchResponse, ResponseLimits, Timeouts
from gossamer.fetch.foreign import OWN, FetcherParts, ForeignFetcher, make_fetcher
from gossamer.net.resolve import Resolver

Promise = Callable[["Trial"], Awaitable[None]]

_HOST, _PRIVATE, _UNKNOWN = "fetcher.test", "private.test", "unknown.test"
_PAGE = b"<title>hello</title>"
_LARGE_BYTES = 64 * 1024 * 1024
_LIMITS = ResponseLimits(header_bytes=32 * 1024, body_bytes=256 * 1024)
_TIMEOUTS = Timeouts(connect=3.0, first_byte=1.0, idle=1.0, total=3.0)
_PATIENCE_SECONDS = 15.0
"""Longest time of one promise."""
_HEADERS = (("User-Agent", "contract/1"), ("Accept", "text/html"), ("X-Second", "2"))


def _plain(body: bytes, headers: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode("latin-1") + body


_ANSWERS: dict[str, bytes | None] = {
    "/page": _plain(_PAGE, "Content-Type: text/html\r\nX-Odd: \xe9\r\nSet-Cookie: a=b\r\n"),
    "/moved": _plain(b"gone", "Location: /page\r\n", "302 Found"),
    "/missing": _plain(b"no", "", "404 Not Found"),
    "/broken": _plain(b"no", "", "503 Service Unavailable"),
    "/gzip": _plain(gzip.compress(_PAGE), "Content-Encoding: gzip\r\n"),
    "/bomb": _plain(gzip.compress(bytes(_LARGE_BYTES)), "Content-Encoding: gzip\r\n"),
    "/hang-up": b"",
    "/half": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
    "/garbage": b"\x00\x01\x02 this is not HTTP\r\n\r\n",
    "/long-head": b"HTTP/1.1 200 OK\r\n" + b"X-Long: 123456789\r\n" * 10_000,
    "/silent": None,
}
"""Answers by path, after which the server closes the connection. None: it says nothing."""


class TrialServer:
    """Web server that remembers what it was sent."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.port = 0
        self.open = 0
        self.sent_bytes = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        self.open += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(one[15:]) for one in head.lower().split(b"\r\n") if one.startswith(b"content-length:")), 0
                )
                self.requests.append(head + await reader.readexactly(length))
                path = head.split(b" ")[1].decode("latin-1").partition("?")[0]
                if path == "/large":
                    await self._send_large(writer)
                answer = _ANSWERS.get(path, b"")
                if answer is None:
                    await reader.read()  # until the client hangs up
                    return
                writer.write(answer)
                await writer.drain()
                if path not in ("/page", "/moved", "/missing", "/gzip"):
                    return
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self.open -= 1
            writer.close()

    async def _send_large(self, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {_LARGE_BYTES}\r\n\r\n".encode())
        while self.sent_bytes < _LARGE_BYTES:
            writer.write(bytes(65536))
            await writer.drain()
            self.sent_bytes += 65536


class PromiseBroken(Exception):
    """The promise is broken."""


class Trial:
    """One fetcher and one server, for one promise."""

    def __init__(self, fetcher: ForeignFetcher, server: TrialServer) -> None:
        self.fetcher = fetcher
        self.server = server

    async def fetch(self, path: str, host: str = _HOST, **fields: Any) -> FetchResponse:
        """Return the fetcher's response to a request to the server."""
        request = FetchRequest(f"http://{host}:{self.server.port}{path}", headers=_HEADERS, **fields)
        return await self.fetcher.fetch(request, None)

    async def fails(self, path: str, *kinds: type[FetchError], **fields: Any) -> FetchError:
        """Return the error of a request, which must be of one of these kinds."""
        try:
            response = await self.fetch(path, **fields)
        except kinds as error:
            return error
        except Exception as error:
            raise PromiseBroken(f"raised {type(error).__name__}: {error}, not {_names(kinds)}") from error
        raise PromiseBroken(f"returned status {response.status}, and did not raise {_names(kinds)}")


def _names(kinds: tuple[type[FetchError], ...]) -> str:
    return " or ".join(kind.__name__ for kind in kinds)


def _expect(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise PromiseBroken(f"{what}: {found!r:.200}, not {expected!r:.200}")


# --- the promises -----------------------------------------------------------------------------------------------------


async def _returns_the_page(trial: Trial) -> None:
    response = await trial.fetch("/page?q=1")
    _expect((response.status, response.body), (200, _PAGE), "status and body")
    _expect(response.url, f"http://{_HOST}:{trial.server.port}/page?q=1", "url")
    _expect((response.ip, response.port), ("127.0.0.1", trial.server.port), "address")
    headers = {name.lower(): value for name, value in response.headers}
    _expect((headers.get("content-type"), headers.get("x-odd")), ("text/html", "\xe9"), "headers, in Latin-1")
    _expect((response.truncated, response.wire_body), (False, None), "truncated and wire_body")
    if response.timings.total <= 0 or response.received_bytes < len(_PAGE):
        raise PromiseBroken("timings.total or received_bytes is not set")
    if not response.response_head.startswith(b"HTTP/") or not response.response_head.endswith(b"\r\n\r\n"):
        raise PromiseBroken("response_head is no whole head")


async def _sends_what_it_was_given(trial: Trial) -> None:
    await trial.fetch("/page?q=1", method="POST", body=b"a=b")
    sent = trial.server.requests[0]
    first, *lines = sent.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    _expect(first.rpartition(" ")[0], "POST /page?q=1", "request line")
    _expect(sent.partition(b"\r\n\r\n")[2], b"a=b", "body")
    names = [name for name, _ in _HEADERS]
    _expect([one for one in lines if one.partition(":")[0] in names], [f"{n}: {v}" for n, v in _HEADERS], "headers")


async def _returns_any_status(trial: Trial) -> None:
    for path, status in (("/missing", 404), ("/broken", 503)):
        _expect((await trial.fetch(path)).status, status, f"status of {path}")


async def _follows_no_redirect(trial: Trial) -> None:
    response = await trial.fetch("/moved")
    _expect((response.status, len(trial.server.requests)), (302, 1), "status, and number of requests")


async def _keeps_no_cookies(trial: Trial) -> None:
    await trial.fetch("/page")
    await trial.fetch("/page")
    if b"cookie:" in trial.server.requests[1].lower():
        raise PromiseBroken("sent a cookie that it was not given")


async def _sends_a_charged_request_once(trial: Trial) -> None:
    for path in ("/broken", "/hang-up", "/half", "/garbage", "/silent"):
        before = len(trial.server.requests)
        with suppress(FetchError):
            await trial.fetch(path, send_by=time.monotonic() + 60)
        if len(trial.server.requests) > before + 1:
            raise PromiseBroken(f"sent {len(trial.server.requests) - before} requests for {path}")


async def _sends_nothing_too_late(trial: Trial) -> None:
    await trial.fails("/page", NotSentInTime, send_by=time.monotonic() - 1)
    _expect(trial.server.requests, [], "requests")


async def _cuts_a_long_body(trial: Trial) -> None:
    response = await trial.fetch("/large")
    _expect((response.truncated, len(response.body)), (True, _LIMITS.body_bytes), "truncated, and length")
    if trial.server.sent_bytes > _LARGE_BYTES // 2:
        raise PromiseBroken(f"went on reading: {trial.server.sent_bytes:,} bytes were sent")


async def _decodes_bodies(trial: Trial) -> None:
    response = await trial.fetch("/gzip", keep_wire=True)
    _expect(response.body, _PAGE, "body")
    if response.wire_body is None or gzip.decompress(response.wire_body) != _PAGE:
        raise PromiseBroken("wire_body is not the body as it was sent")


async def _bounds_what_it_decodes(trial: Trial) -> None:
    try:
        response = await trial.fetch("/bomb")
    except DecodeBomb:
        return
    if len(response.body) > _LIMITS.body_bytes:
        raise PromiseBroken(f"decoded {len(response.body):,} bytes")


async def _names_failures(trial: Trial) -> None:
    await trial.fails("/hang-up", ConnectionLost)
    await trial.fails("/half", ConnectionLost)
    await trial.fails("/garbage", BadResponse)
    await trial.fails("/long-head", HeadersTooLarge)
    await trial.fails("/silent", FirstByteTimeout, IdleTimeout, TotalTimeout)
    await trial.fails("/page", DnsFailed, host=_UNKNOWN)
    port, trial.server.port = trial.server.port, 1
    await trial.fails("/page", ConnectFailed)
    trial.server.port = port


async def _obeys_the_guard(trial: Trial) -> None:
    await trial.fails("/page", BlockedAddress, host=_PRIVATE)
    _expect(trial.server.requests, [], "requests")
    response = await trial.fetch("/page", host=_PRIVATE, allow_private=True)
    _expect(response.status, 200, "status where the address is permitted")


async def _sends_many_at_once(trial: Trial) -> None:
    responses = await asyncio.gather(*(trial.fetch("/page") for _ in range(30)))
    _expect({one.status for one in responses}, {200}, "statuses")


async def _can_be_cancelled(trial: Trial) -> None:
    task = asyncio.ensure_future(trial.fetch("/silent"))
    await _settles(lambda: bool(trial.server.requests), "the request does not arrive")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Less than the time after which the fetcher gives up by itself.
    await _settles(lambda: trial.server.open == 0, "the connection of a cancelled request stays open", 0.7)


async def _closes_everything(trial: Trial) -> None:
    await trial.fetch("/page")
    await trial.fetcher.close()
    await trial.fetcher.close()
    await _settles(lambda: trial.server.open == 0, "connections stay open")


async def _settles(condition: Callable[[], bool], otherwise: str, seconds: float = 2.0) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise PromiseBroken(otherwise)
        await asyncio.sleep(0.01)


PROMISES: dict[str, Promise] = {
    "returns status, headers, body and address": _returns_the_page,
    "sends method, headers in order, and body": _sends_what_it_was_given,
    "returns any status": _returns_any_status,
    "follows no redirect": _follows_no_redirect,
    "keeps no cookies": _keeps_no_cookies,
    "sends a charged request once": _sends_a_charged_request_once,
    "sends nothing after the latest time": _sends_nothing_too_late,
    "cuts a body at its limit, and reads no more": _cuts_a_long_body,
    "decodes bodies, and keeps them as sent on demand": _decodes_bodies,
    "bounds what it decodes": _bounds_what_it_decodes,
    "names each failure": _names_failures,
    "connects only to approved addresses": _obeys_the_guard,
    "sends many requests at once": _sends_many_at_once,
    "can be cancelled": _can_be_cancelled,
    "closes all connections, also twice": _closes_everything,
}


async def check(name: str) -> dict[str, str]:
    """Return what happened instead of each promise; empty where it was kept. Raises BadInput if there is no such
    fetcher."""
    return {words: await _try(name, promise) for words, promise in PROMISES.items()}


async def _try(name: str, promise: Promise) -> str:
    """Return what happened instead of the promise."""
    async with _trial(name) as trial:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await promise(trial)
        except PromiseBroken as error:
            return str(error)
        except TimeoutError:
            return f"took more than {_PATIENCE_SECONDS:g} s"
        except Exception as error:
            return f"raised {type(error).__name__}: {error}"
        return ""


@asynccontextmanager
async def _trial(name: str) -> AsyncIterator[Trial]:
    """Open a fetcher and a server of their own."""

    async def look_up(host: str) -> list[str]:
        if host == _PRIVATE:
            return ["127.0.0.1"]
        raise DnsFailed(host)

    server = TrialServer()
    listening = await asyncio.start_server(server.answer, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    resolver = Resolver(overrides={_HOST: "127.0.0.1"}, lookup=look_up)
    fetcher = make_fetcher(name, FetcherParts(resolver, _LIMITS, _TIMEOUTS, ""))
    try:
        yield Trial(fetcher, server)
    finally:
        await fetcher.close()
        resolver.close()
        listening.close()


def main(arguments: list[str]) -> int:
    """Run the program."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stdout.write(f"{__doc__}\nNAME is that of an entry point, or {OWN!r} for Gossamer's own client.\n")
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        results = asyncio.run(check(arguments[0]))
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for words, fault in results.items():
        sys.stdout.write(f"{'broken' if fault else 'kept'}  {words}{f': {fault}' if fault else ''}\n")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
