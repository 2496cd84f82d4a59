"""A crawl's pages, failures and items, read from the bus as far as it keeps them."""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from starlette.responses import Response

from gossamer.api.context import ApiContext, Given
from gossamer.api.crawls import unknown
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.reading import CRAWL, TheCrawl
from gossamer.bus.base import Reader
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId

AT_ONCE = 4
"""Topics that one process reads at the same time."""
_MOST_LOOKED_AT = 20_000
_MOST_SECONDS = 3.0
_MOST_BYTES = 16 * 1024 * 1024
_BATCH = 500
_SLICE_SECONDS = 0.05
"""A bus that is far away needs many of them, one that is near a single one to know that there is no more."""

router = APIRouter(prefix=CRAWL, tags=["crawls"])


class _Head(msgspec.Struct):
    """What decides whether a message is looked for."""

    appid: str = ""
    crawlid: str = ""
    type: str = "page"
    success: bool = True
    timestamp: Any = None


class RecordPage(ResponseModel):
    """Some of the records, in the order in which they were published."""

    items: list[dict[str, object]]
    """As on the bus, but `timestamp` has its zone: the reference of the messages has every field"""
    cursor: str
    """Where to go on, also later: then it has what came meanwhile"""
    more: bool
    """False: this was all there is now"""


_head = msgspec.json.Decoder(_Head)
_fields: msgspec.json.Decoder[dict[str, Any]] = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RESPONSES = {200: {"description": "Some of them", "model": RecordPage}, **refusals(400, 404, 503)}


@router.get("/pages", operation_id="crawl_pages", summary="Pages that were fetched", responses=_RESPONSES)
async def pages(parts: Given, crawl: TheCrawl, request: Request, cursor: Cursor = "", limit: Limit = 50) -> Response:
    """As long as the bus keeps them. `more` may be true and the page empty: so far others' records were passed over.

    A long body may be in the blob store, its address in `body_address`. For all pages of a busy cluster read the bus
    itself."""
    return await _answer(parts, request, crawl, cursor, limit, lambda head: head.type == "page" and head.success)


@router.get("/failures", operation_id="crawl_failures", summary="Requests that failed", responses=_RESPONSES)
async def failures(parts: Given, crawl: TheCrawl, request: Request, cursor: Cursor = "", limit: Limit = 50) -> Response:
    """With the reason. Like pages otherwise."""
    return await _answer(parts, request, crawl, cursor, limit, lambda head: head.type == "page" and not head.success)


@router.get("/items", operation_id="crawl_items", summary="What spiders extracted", responses=_RESPONSES)
async def items(parts: Given, crawl: TheCrawl, request: Request, cursor: Cursor = "", limit: Limit = 50) -> Response:
    """Like pages otherwise."""
    return await _answer(parts, request, crawl, cursor, limit, lambda head: head.type == "item")


async def _answer(
    parts: ApiContext, request: Request, crawl: CrawlId, cursor: str, limit: int, is_wanted: Callable[[_Head], bool]
) -> Response:
    if await parts.frontier.latest_run(crawl) is None:
        raise unknown(crawl)
    topic = parts.topics.crawled_by(crawl.appid) if parts.per_app else parts.topics.crawled
    async with request.app.state.scans:
        reader = await parts.bus.read([topic], from_beginning=True, after=_mark(cursor))
        try:
            found, more = await _read(parts, reader, crawl, limit, is_wanted)
        finally:
            await reader.close()
    body = {"items": found, "cursor": _cursor(reader.cursor()), "more": more}
    return Response(msgspec.json.encode(body), media_type="application/json")


async def _read(
    parts: ApiContext, reader: Reader, crawl: CrawlId, limit: int, is_wanted: Callable[[_Head], bool]
) -> tuple[list[msgspec.Raw], bool]:
    """(records, whether there may be more)."""
    found: list[msgspec.Raw] = []
    size = looked_at = 0
    until = parts.monotonic() + _MOST_SECONDS
    while looked_at < _MOST_LOOKED_AT and (left := until - parts.monotonic()) > 0:
        messages = await reader.take(at_most=_BATCH, wait_seconds=min(left, _SLICE_SECONDS))
        for at, message in enumerate(messages):
            try:
                head = _head.decode(message.value)
            except msgspec.DecodeError:
                continue  # somebody else's: anyone may publish here
            if (head.appid, head.crawlid) != (crawl.appid, crawl.crawlid) or not is_wanted(head):
                continue
            size += len(message.value)
            if found and (len(found) >= limit or size > _MOST_BYTES):
                await reader.acknowledge(messages[:at])
                return found, True
            found.append(_zoned(message.value, head.timestamp))
        looked_at += len(messages)
        await reader.acknowledge(messages)
        if reader.is_at_end():
            return found, False
    return found, True


def _zoned(value: bytes, timestamp: Any) -> msgspec.Raw:
    """The record with its time in UTC, which has no zone on the bus, as RFC 3339 asks for."""
    try:
        if datetime.fromisoformat(timestamp).tzinfo is not None:
            return msgspec.Raw(value)
    except (TypeError, ValueError):
        return msgspec.Raw(value)
    fields = _fields.decode(value) | {"timestamp": f"{timestamp}+00:00"}
    return msgspec.Raw(msgspec.json.encode(fields))


def _cursor(mark: str) -> str:
    return base64.urlsafe_b64encode(mark.encode()).decode().rstrip("=")


def _mark(cursor: str) -> str:
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadInput("cursor: this is none") from None
