"""A crawl's progress as Server-Sent Events, until it ends or nobody listens."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.api.context import ApiContext, Given
from gossamer.api.crawls import progress, unknown
from gossamer.api.openapi import refusals
from gossamer.api.problems import Problem, broken, problem_of, shown
from gossamer.api.reading import CRAWL, TheCrawl, normal
from gossamer.errors import FrontierError, GossamerError
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.telemetry import logs as names

MOST_STREAMS = 200
"""Of one process."""
_PAUSE_SECONDS = 1.0
_SIGN_OF_LIFE = 15
"""Pauses without news after which a comment is sent, so that nobody between us closes the connection."""

router = APIRouter(prefix=CRAWL, tags=["crawls"])


class EventStreams:
    """How many there are in this process, and when they must end."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = asyncio.Event()

    @contextmanager
    def joined(self) -> Iterator[None]:
        """One more of them, as long as the context. Raises Problem when there are too many."""
        if self.open >= MOST_STREAMS:
            raise Problem(503, "Too busy", f"{MOST_STREAMS} listen already", headers={"Retry-After": "5"})
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class _Stream(StreamingResponse):
    """A stream that is counted while it is sent."""

    def __init__(self, events: AsyncIterator[bytes], streams: EventStreams) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.joined():
            await super().__call__(scope, receive, send)


@router.get(
    "/events",
    operation_id="crawl_events",
    summary="Progress, live",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events `progress` (where the crawl stands, as in the list of crawls; at most one a second, "
            "when something changed), `trouble` (the frontier is away; it goes on when it is back) and `end`, the last",
            "content": {
                "text/event-stream": {
                    "schema": {"type": "string"},
                    "example": 'event: progress\ndata: {"run":1}\n\nevent: end\ndata: {"run":1}\n\n',
                }
            },
        },
        **refusals(404, 503),
    },
)
async def events(parts: Given, crawl: TheCrawl, request: Request) -> Response:
    """The stream ends with the crawl's run; a crawl that is over has its `end` at once. After an interruption ask
    again: every event has all there is to know."""
    streams: EventStreams = request.app.state.streams
    info = await parts.frontier.crawl_info(crawl)
    if info is None:
        raise unknown(crawl)
    return _Stream(_events(parts, crawl, info, streams.closing), streams)


async def _events(parts: ApiContext, crawl: CrawlId, first: CrawlInfo, closing: asyncio.Event) -> AsyncIterator[bytes]:
    info: CrawlInfo | None = first
    run, told, silent, is_away = first.run, b"", 0, False
    while not closing.is_set():
        if info is None or info.run != run:
            yield _event("end", told)  # forgotten, or begun anew: the run that was listened to is over
            return
        now = progress(info)
        if info.state is not CrawlState.RUNNING:
            yield _event("end", now)
            return
        silent += 1
        if now != told:
            told, silent = now, 0
            yield _event("progress", now)
        elif silent >= _SIGN_OF_LIFE:
            silent = 0
            yield b": still there\n\n"
        while True:
            await _pause(closing)
            try:
                info = await parts.frontier.crawl_info(crawl)
                is_away = False
                break
            except FrontierError as error:
                if not is_away:
                    is_away = True
                    yield _event("trouble", str(error).encode())
            if closing.is_set():
                return


async def _pause(closing: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(_PAUSE_SECONDS):
            await closing.wait()
    except TimeoutError:
        return


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), b" ".join(data.splitlines()))


log = logging.getLogger("gossamer.api")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class EventStreamMiddleware:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, parts: ApiContext) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._parts.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._served(scope, receive, noting, lambda: status != 0)
        finally:
            self._count(scope, status, self._parts.monotonic() - started)

    async def _served(self, scope: Scope, receive: Receive, send: Send, is_begun: Callable[[], bool]) -> None:
        try:
            scope["path"] = normal(scope["raw_path"])
            await self._app(scope, receive, send)
            return
        except Problem as error:
            problem = error
        except GossamerError as error:
            problem = problem_of(error)
            if problem.status >= 500:
                log.warning("%s %s: %s", scope["method"], scope["path"], error)
        except Exception:
            log.exception("%s %s %s", names.REQUEST_BROKE, scope["method"], scope["path"])
            problem = broken()
        if not is_begun():
            await shown(problem, scope["path"])(scope, receive, send)
        # Else part of an answer is out: the server sees that the rest does not come, and closes the connection.

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._parts.metrics.http.labels(route, method, str(status)).inc()
        self._parts.metrics.http_seconds.labels(route).observe(seconds)
