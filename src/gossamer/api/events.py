"""The progress of a crawl as Server-Sent Events.

A run of a crawl lasts from a first request until nothing is left to do; the frontier, the cluster's queue of requests,
keeps its state. Fixed, because clients rely on it: the names of the events and their data; `end` is the last event of a
stream; and every `progress` and `end` contains the whole state, so that a client may miss some.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import summary_json, unknown_crawl
from gossamer.api.openapi import refusals
from gossamer.errors import FrontierError
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.web.problems import Problem

MAX_STREAMS = 200
"""Most open event streams of one process. Each costs a call to the frontier every `_POLL_SECONDS`, and a connection.
The limit of connections does not count streams; `_CONNECTION_SHARE` in api/server.py leaves open files for them."""
_RETRY_SECONDS = 5
"""Retry-After when there are too many streams."""
_POLL_SECONDS = 1.0
"""Time between two reads of a crawl's state. Shorter costs more calls, longer delays the events. The description of the
endpoint says "at most once a second"."""
_KEEPALIVE_POLLS = 15
"""Unchanged polls after which a comment is sent, so that no proxy closes the connection. Proxies wait 30 s or more, so
_KEEPALIVE_POLLS * _POLL_SECONDS must stay below that."""

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class EventStreams:
    """Counts the open event streams of this process, and ends them when it stops."""

    def __init__(self) -> None:
        self.open = 0
        self.closing = asyncio.Event()
        """Set when all streams must end."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count one more stream during the context. Raises Problem if there are too many."""
        if self.open >= MAX_STREAMS:
            raise Problem(
                503,
                "Too busy",
                f"{MAX_STREAMS} event streams are open already",
                headers={"Retry-After": str(_RETRY_SECONDS)},
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class _EventStreamResponse(StreamingResponse):
    """A response that is counted as an open stream while it is sent.

    It is counted here and not in the endpoint: a client that leaves before the response begins would stay counted."""

    def __init__(self, events: AsyncIterator[bytes], streams: EventStreams) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.counted():
            await super().__call__(scope, receive, send)


@router.get(
    "/events",
    operation_id="crawl_events",
    summary="Follow the progress of a crawl",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Server-Sent Events: `progress` (the state of the crawl as in the list of crawls, at most "
            "once a second and only after a change), `trouble` (the frontier is unavailable; the stream continues when "
            "it is back) and `end`, the last event",
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
async def crawl_events(context: Context, crawl: PathCrawl, request: Request) -> Response:
    """The stream ends with the crawl's run; if the run has ended, `end` is the only event. After an interruption
    connect again: every `progress` and `end` event contains the whole state."""
    streams: EventStreams = request.app.state.streams
    info = await context.frontier.crawl_info(crawl)
    if info is None:
        raise unknown_crawl(crawl)
    return _EventStreamResponse(_events(context, crawl, info, streams.closing), streams)


async def _events(
    context: ApiContext, crawl: CrawlId, first: CrawlInfo, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """Yield the events of the crawl's current run. `first`: its state now. `closing`: set when the stream must end."""
    info: CrawlInfo | None = first
    sent = b""  # data of the latest progress event
    unchanged_polls = 0
    is_unavailable = False  # True: the frontier did not answer the last poll, and the client was told
    while not closing.is_set():
        if info is None or info.run != first.run:  # the crawl is forgotten, or another run has begun
            yield _event("end", sent)
            return
        current = summary_json(info)
        if info.state is not CrawlState.RUNNING:
            yield _event("end", current)
            return
        unchanged_polls += 1
        if current != sent:
            sent, unchanged_polls = current, 0
            yield _event("progress", current)
        elif unchanged_polls >= _KEEPALIVE_POLLS:
            unchanged_polls = 0
            yield b": still there\n\n"
        while True:  # until the frontier answers
            await _pause(closing)
            try:
                info = await context.frontier.crawl_info(crawl)
                is_unavailable = False
                break
            except FrontierError as error:
                if not is_unavailable:
                    is_unavailable = True
                    yield _event("trouble", str(error).encode())
            if closing.is_set():
                return


async def _pause(closing: asyncio.Event) -> None:
    """Wait until the next poll, or until the stream must end."""
    try:
        async with asyncio.timeout(_POLL_SECONDS):
            await closing.wait()
    except TimeoutError:
        return


def _event(name: str, data: bytes) -> bytes:
    """Return an event as bytes of the stream. Its data must be one line, so line breaks become spaces."""
    return b"event: %s\ndata: %s\n\n" % (name.encode(), b" ".join(data.splitlines()))
