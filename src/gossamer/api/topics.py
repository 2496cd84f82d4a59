"""Endpoints about the message bus: its topics, what the services have still to read, and requests that were rejected.

A rejected request is a dead letter: a message on a topic of its own, with the reason. Fixed: the form of answers and of
cursors, which clients keep.
"""

import asyncio
import base64
import binascii
import contextlib
from collections.abc import Collection, Sequence
from posixpath import commonprefix
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request
from pydantic import Field
from starlette.responses import Response

from gossamer.api import openapi as describe
from gossamer.api.audit import actor_of, begin
from gossamer.api.context import ApiContext, Context
from gossamer.api.openapi import Cursor, LatestFirst, Limit, ResponseModel, refusals
from gossamer.api.pages import decode_cursor, encode_cursor, reader_of
from gossamer.api.problems import bad_request
from gossamer.bus.base import TopicInfo
from gossamer.control.resent import ResentMark, ResentMarks, letter_id
from gossamer.errors import FrontierError
from gossamer.telemetry.metrics import LAG
from gossamer.web.audit import origin_of

_POLL_SECONDS = 0.2
"""Longest wait for the first message. A remote broker may need several polls before it reports the end of a topic."""
_POLLS = 10
"""Polls of one call. With fewer, a remote broker may seem to have no dead letters."""

_EXAMPLE = {
    "topic": "demo.incoming",
    "message": '{"appid": "shop", "crawlid": "prices", "url": "https://example.com"}',
    "message_encoding": "text",
}

router = APIRouter(prefix="/v1", tags=["cluster"])


class TopicStatus(ResponseModel):
    """A topic of the bus."""

    name: str
    messages: int
    """Messages that the topic holds now, read or not"""
    is_of_requests: bool
    """True: the services read requests from it"""


class TopicList(ResponseModel):
    """A page of the topics, by name, and the requests that wait in all of them."""

    items: list[TopicStatus]
    cursor: str
    """Start of the next page; empty if this is the last one"""
    requests: list[str]
    """Names of the topics from which the services read requests"""
    of_requests: list[TopicStatus]
    """Those of them that exist, on whatever page they are"""
    lag: int
    """Requests that the services have not read, as this process measured it last, some seconds ago"""
    dead_letter: str
    """Name of the topic with rejected requests"""


class ResentRequest(ResponseModel):
    """Sender and time of a rejected request that was sent again."""

    at: float
    """Epoch seconds"""
    actor: str
    """As in the audit"""
    origin: str
    """Address of the client"""


class DeadLetter(ResponseModel):
    """A request that was rejected."""

    id: str
    """Names the dead letter"""
    topic: str
    """Topic from which it came"""
    message: str
    """The message as it came"""
    message_encoding: str = "text"
    """`text`, or `base64` if the message is not UTF-8"""
    field: str = ""
    """Field that is at fault; empty: the whole message"""
    reason: str = ""
    timestamp: float = 0.0
    """Epoch seconds of the rejection"""
    resent: ResentRequest | None = None
    """Its last sending by this API, in the last 30 days; null: not known, or it was not sent again"""


class DeadLetterPage(ResponseModel):
    """A page of dead letters, in the order in which they were published, or with `latest_first` the other one."""

    items: list[DeadLetter]
    cursor: str
    """`cursor` of the next call, which may be made now or later"""
    more: bool
    """True: there may be more now. False: there are none at present"""


class Resubmission(ResponseModel):
    """A message to send again."""

    topic: str
    message: str
    message_encoding: Literal["text", "base64"] = "text"
    letter: str = Field("", pattern="^([0-9a-f]{32})?$")
    """`id` of the dead letter, which is marked as sent again"""


@router.get(
    "/topics",
    operation_id="topics",
    summary="List the topics of the bus",
    response_model=TopicList,
    responses=refusals(400, 503),
)
async def list_topics(context: Context, cursor: Cursor = "", limit: Limit = 100) -> TopicList:
    """Topics are created when something is first published to them. Each application has two of its own."""
    topics, requests = context.topics, frozenset(context.topics.requests)
    found, first = await asyncio.gather(
        context.bus.topics(after=decode_cursor(cursor), limit=limit + 1),
        # Their names have a beginning that no other topic has.
        context.bus.topics(after=commonprefix(topics.requests), limit=len(topics.requests)),
    )
    return TopicList(
        items=[_status_of(topic, requests) for topic in found[:limit]],
        of_requests=[_status_of(topic, requests) for topic in first if topic.name in requests],
        cursor=encode_cursor(found[limit - 1].name) if len(found) > limit else "",
        requests=list(topics.requests),
        lag=int(context.metrics.sample(LAG)),
        dead_letter=topics.dead_letter,
    )


def _status_of(topic: TopicInfo, requests: Collection[str]) -> TopicStatus:
    return TopicStatus(name=topic.name, messages=topic.messages, is_of_requests=topic.name in requests)


@router.get(
    "/dead-letters",
    operation_id="dead_letters",
    summary="List rejected requests with their reasons",
    response_model=DeadLetterPage,
    responses=refusals(400, 503),
)
async def list_dead_letters(
    context: Context, request: Request, cursor: Cursor = "", limit: Limit = 50, latest_first: LatestFirst = False
) -> Any:
    """Dead letters are available as long as the bus keeps them."""
    topic = context.topics.dead_letter
    if not await context.bus.existing([topic]):
        return DeadLetterPage(items=[], cursor=cursor, more=False)
    async with request.app.state.topic_reads:
        reader = await reader_of(context, topic, cursor, latest_first=latest_first)
        try:
            found: list[DeadLetter] = []
            for _ in range(_POLLS):
                messages = await reader.take(at_most=limit + 1 - len(found), wait_seconds=_POLL_SECONDS)
                await reader.acknowledge(messages[: limit - len(found)])  # one more tells whether the page is the last
                found += [_dead_letter(message.value) for message in messages]
                if len(found) > limit or reader.is_at_end():
                    break
            more = len(found) > limit or not reader.is_at_end()
        finally:
            await reader.close()
    await _add_marks(context, found[:limit])
    return DeadLetterPage(items=found[:limit], cursor=encode_cursor(reader.cursor()), more=more)


def _dead_letter(value: bytes) -> DeadLetter:
    """Return a message of the topic. One that Gossamer has not written is shown as it is."""
    own: dict[str, Any] = {"id": letter_id(value), "resent": None}
    try:
        return DeadLetter(**{**msgspec.json.decode(value, type=dict[str, Any]), **own})
    except (msgspec.DecodeError, TypeError, ValueError):
        text = value.decode("utf-8", "replace")
        return DeadLetter(topic="", message=text, reason="not a dead letter of Gossamer", **own)


async def _add_marks(context: ApiContext, letters: Sequence[DeadLetter]) -> None:
    """Mark the dead letters that were sent again. While the frontier, which knows them, is away, none is marked."""
    with contextlib.suppress(FrontierError):
        marks = await ResentMarks(context.shards, prefix=context.prefix).read([letter.id for letter in letters])
        for letter, mark in zip(letters, marks, strict=True):
            letter.resent = None if mark is None else ResentRequest.of(mark)


@router.post(
    "/dead-letters/replay",
    operation_id="dead_letter_replay",
    summary="Send a rejected request again",
    status_code=204,
    responses=refusals(400, 503),
    openapi_extra=describe.body(
        {"application/json": {"schema": {"$ref": f"{describe.SCHEMAS}Resubmission"}, "example": _EXAMPLE}},
        "The message, perhaps with its fault mended",
    ),
)
async def replay_dead_letter(context: Context, request: Request) -> Response:
    """Publish a message to a topic of requests. The services check it as any other: if it is rejected again, it is a
    new dead letter. The old one stays where it is; with its id in `letter`, it is marked as sent again."""
    try:
        given = Resubmission.model_validate_json(await request.body())
        encoded = given.message_encoding == "base64"
        value = base64.b64decode(given.message, validate=True) if encoded else given.message.encode()
    except (binascii.Error, ValueError) as error:
        raise bad_request(str(error).partition("\n")[0]) from None
    if given.topic not in context.topics.requests:
        raise bad_request(f"must be one of {', '.join(context.topics.requests)}", where="topic")
    await begin(request, "dead_letter.replay", given.topic)
    await context.bus.publish(given.topic, [value])
    if given.letter:
        mark = ResentMark(at=context.clock(), actor=actor_of(context), origin=origin_of(request))
        with contextlib.suppress(FrontierError):  # the request is sent: an error would ask for it again
            await ResentMarks(context.shards, prefix=context.prefix).add(given.letter, mark)
    return Response(status_code=204)
