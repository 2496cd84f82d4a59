"""The progress of a crawl as Server-Sent Events.

A run of a crawl lasts from a first request until nothing is left to do; the frontier, the cluster's queue of requests,
keeps its state. Fixed, because clients rely on it: the names of the events and their data; `end` is the last event of a
stream; and every `progress` and `end` contains the whole state, so that a client may miss some.
"""

from collections.abc import AsyncIterator

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import summary_json, unknown_crawl
from gossamer.api.openapi import refusals
from gossamer.errors import FrontierError
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.web.streams import KEEPALIVE, KEEPALIVE_SECONDS, EventStreamResponse, EventStreams, event

_POLL_SECONDS = 1.0
"""Time between two reads of a crawl's state. Shorter costs more calls, longer delays the events. The description of the
endpoint says "at most once a second"."""
_KEEPALIVE_POLLS = round(KEEPALIVE_SECONDS / _POLL_SECONDS)
"""Unchanged polls after which a comment is sent."""

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


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
    return EventStreamResponse(_events(context, crawl, info, streams), streams)


async def _events(context: ApiContext, crawl: CrawlId, first: CrawlInfo, streams: EventStreams) -> AsyncIterator[bytes]:
    """Yield the events of the crawl's current run. `first`: its state now."""
    info: CrawlInfo | None = first
    sent = b""  # data of the latest progress event
    unchanged_polls = 0
    is_unavailable = False  # True: the frontier did not answer the last poll, and the client was told
    while not streams.closing.is_set():
        if info is None or info.run != first.run:  # the crawl is forgotten, or another run has begun
            yield event("end", sent)
            return
        current = summary_json(info)
        if info.state is not CrawlState.RUNNING:
            yield event("end", current)
            return
        unchanged_polls += 1
        if current != sent:
            sent, unchanged_polls = current, 0
            yield event("progress", current)
        elif unchanged_polls >= _KEEPALIVE_POLLS:
            unchanged_polls = 0
            yield KEEPALIVE
        while True:  # until the frontier answers
            await streams.pause(_POLL_SECONDS)
            try:
                info = await context.frontier.crawl_info(crawl)
                is_unavailable = False
                break
            except FrontierError as error:
                if not is_unavailable:
                    is_unavailable = True
                    yield event("trouble", str(error).encode())
            if streams.closing.is_set():
                return
