"""Endpoints for the pages, failures and items of a crawl, read from the message bus as long as it keeps them.

Fixed: the form of an answer and of its cursor, which clients keep; and the order of reading and acknowledging in
`_read`: the cursor moves past acknowledged messages only.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from gossamer.api.context import CRAWL_PATH, ApiContext, Context, PathCrawl
from gossamer.api.crawls import check_known, first_started
from gossamer.api.openapi import Cursor, LatestFirst, Limit, ResponseModel, refusals
from gossamer.bus.base import Reader
from gossamer.errors import BadInput
from gossamer.model.crawl import CrawlId
from gossamer.policy.urls import from_user_input

MAX_TOPIC_READS = 4
"""Concurrent reads of topics in one process; further calls wait. Each read holds a batch of messages and up to
`_MAX_BYTES` of records in memory."""
_MAX_MESSAGES_READ = 20_000
"""Messages that one call reads to find records. With more, rare records need fewer calls, and each call reads more of
the bus."""
_MAX_SECONDS = 3.0
"""Longest time for which one call reads. Must stay below the timeouts of clients and proxies."""
_SEED_SECONDS = 1.5
"""Longest time for which seeds are looked for. A form waits for them."""
_CLOCKS_DIFFER_SECONDS = 60.0
"""Time by which the clocks of the frontier and of the bus may differ."""
_MAX_BYTES = 16 * 1024 * 1024
"""Size of all records of one answer; the first record is returned whatever its size. A larger value needs memory for
each of `MAX_TOPIC_READS`."""
_BATCH_SIZE = 500
"""Messages that one poll takes. Larger batches need fewer polls and more memory."""
_POLL_SECONDS = 0.05
"""Longest wait of one poll. A remote broker may need several polls without messages before it reports the end of a
topic, so a longer wait delays the answers and a shorter one polls more often."""

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class RecordHeader(msgspec.Struct):
    """Fields that decide whether a message belongs to the answer. The names are those of the records: fixed."""

    appid: str = ""
    crawlid: str = ""
    type: str = "page"
    """`page` or `item`. Pages that Scrapy Cluster's crawlers publish have no type."""
    success: bool = True
    """False: the request failed, and the record is in the list of failures."""
    reason: Any = ""
    depth: Any = None
    """Links between the start of the crawl and this page."""
    url: Any = ""
    timestamp: Any = None
    """Any, because programs other than Gossamer may write something else than text."""


class RecordPage(ResponseModel):
    """Some of the records, in the order in which they were published, or with `latest_first` the other one."""

    items: list[dict[str, object]]
    """Records as on the bus (see the reference of messages), but `timestamp` has a time zone"""
    cursor: str
    """`cursor` of the next call, which may be made now or later"""
    more: bool
    """True: there may be more records now. False: there are none at present"""


OfUrl = Annotated[str, Query(description="Only records of this URL, as a person writes it", max_length=65_536)]

_decode_header = msgspec.json.Decoder(RecordHeader).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_RESPONSES = {200: {"description": "Some of the records", "model": RecordPage}, **refusals(400, 404, 503)}


@router.get("/pages", operation_id="crawl_pages", summary="Return fetched pages", responses=_RESPONSES)
async def list_pages(
    crawl: PathCrawl,
    request: Request,
    url: OfUrl = "",
    cursor: Cursor = "",
    limit: Limit = 50,
    latest_first: LatestFirst = False,
) -> Response:
    """Pages are available as long as the bus keeps them. An empty answer with `more: true` means that the call found
    only records of other crawls; continue with its cursor.

    A long body may be in the blob store, at `body_address`. To process all pages of a busy cluster, consume the bus."""
    wanted = from_user_input(url) if url else ""

    def is_wanted(header: RecordHeader) -> bool:
        return header.type == "page" and header.success and wanted in ("", header.url)

    return await _answer(request, crawl, (cursor, limit, latest_first), is_wanted)


@router.get("/failures", operation_id="crawl_failures", summary="Return failed requests", responses=_RESPONSES)
async def list_failures(
    crawl: PathCrawl,
    request: Request,
    reason: Annotated[
        str, Query(description="Only requests that failed for this reason, such as `http_503`", max_length=200)
    ] = "",
    url: OfUrl = "",
    cursor: Cursor = "",
    limit: Limit = 50,
    latest_first: LatestFirst = False,
) -> Response:
    """Failed requests, each with its `reason`. `cursor` and `more` work as for `pages`."""
    wanted = from_user_input(url) if url else ""

    def is_wanted(header: RecordHeader) -> bool:
        is_failure = header.type == "page" and not header.success
        return is_failure and (not reason or header.reason == reason) and wanted in ("", header.url)

    return await _answer(request, crawl, (cursor, limit, latest_first), is_wanted)


@router.get("/items", operation_id="crawl_items", summary="Return extracted items", responses=_RESPONSES)
async def list_items(
    crawl: PathCrawl,
    request: Request,
    cursor: Cursor = "",
    limit: Limit = 50,
    latest_first: LatestFirst = False,
) -> Response:
    """Items that spiders extracted. `cursor` and `more` work as for `pages`."""
    return await _answer(request, crawl, (cursor, limit, latest_first), lambda header: header.type == "item")


class SeedList(ResponseModel):
    """URLs with which a crawl began, as far as they have records: the latest run and those that it continues."""

    items: list[str]
    more: bool
    """True: there may be more"""


@router.get(
    "/seeds",
    operation_id="crawl_seeds",
    summary="Return the URLs with which a crawl began",
    response_model=SeedList,
    responses=refusals(400, 404, 503),
)
async def list_seeds(context: Context, crawl: PathCrawl, request: Request, limit: Limit = 100) -> SeedList:
    """Pages and failures at depth 0, in the order in which they were published. Reads what was published first in the
    latest run, or in the first one of those that it continues, as after a retry: where a crawl has so many pages that
    its seeds come among the last, there are more."""
    started = await first_started(context, crawl)
    found: dict[str, None] = {}
    async with request.app.state.topic_reads:
        since = max(0.0, started - _CLOCKS_DIFFER_SECONDS)
        reader = await context.bus.read([records_topic(context, crawl)], from_beginning=True, since=since)
        try:
            deadline, read = context.monotonic() + _SEED_SECONDS, 0
            while len(found) <= limit and read < _MAX_MESSAGES_READ and context.monotonic() < deadline:
                messages = await reader.take(at_most=_BATCH_SIZE, wait_seconds=_POLL_SECONDS)
                for message in messages:
                    header = header_of(message.value, crawl)
                    if header is not None and header.type == "page" and not header.depth and header.url:
                        found[str(header.url)] = None
                read += len(messages)
                if reader.is_at_end():
                    return SeedList(items=list(found)[:limit], more=len(found) > limit)
        finally:
            await reader.close()
    return SeedList(items=list(found)[:limit], more=True)


def records_topic(context: ApiContext, crawl: CrawlId) -> str:
    """Return the topic that has the records of a crawl."""
    return context.topics.crawled_by(crawl.appid) if context.per_app else context.topics.crawled


def header_of(message: bytes, crawl: CrawlId) -> RecordHeader | None:
    """Return the header of a message, if it is a record of the crawl. Programs other than Gossamer may publish to these
    topics, too."""
    try:
        header = _decode_header(message)
    except msgspec.DecodeError:
        return None
    return header if (header.appid, header.crawlid) == (crawl.appid, crawl.crawlid) else None


async def _answer(
    request: Request, crawl: CrawlId, chosen: tuple[str, int, bool], is_wanted: Callable[[RecordHeader], bool]
) -> Response:
    """Return the records of the crawl that `is_wanted` accepts. `chosen`: the cursor from which on, how many, and
    whether the latest come first."""
    cursor, limit, latest_first = chosen
    context: ApiContext = request.app.state.context
    await check_known(context, crawl)
    async with request.app.state.topic_reads:
        reader = await reader_of(context, records_topic(context, crawl), cursor, latest_first=latest_first)
        try:
            records, more = await _read(context, reader, crawl, limit, is_wanted)
        finally:
            await reader.close()
    body = {"items": records, "cursor": encode_cursor(reader.cursor()), "more": more}
    return Response(msgspec.json.encode(body), media_type="application/json")


async def reader_of(context: ApiContext, topic: str, cursor: str, *, latest_first: bool) -> Reader:
    """Return a reader of a topic from a cursor of an answer on. The caller closes it. Raises BadInput."""
    place = decode_cursor(cursor)
    if latest_first:
        return await context.bus.read_back(topic, before=place)
    return await context.bus.read([topic], from_beginning=True, after=place)


async def _read(
    context: ApiContext, reader: Reader, crawl: CrawlId, limit: int, is_wanted: Callable[[RecordHeader], bool]
) -> tuple[list[msgspec.Raw], bool]:
    """Return up to `limit` records, and whether there may be more.

    Every limit of the call stops it with True as the second value, so that the client continues with the cursor. Thus a
    limit never hides records."""
    records: list[msgspec.Raw] = []
    bytes_found = messages_read = 0
    deadline = context.monotonic() + _MAX_SECONDS
    while messages_read < _MAX_MESSAGES_READ and (seconds_left := deadline - context.monotonic()) > 0:
        messages = await reader.take(at_most=_BATCH_SIZE, wait_seconds=min(seconds_left, _POLL_SECONDS))
        for index, message in enumerate(messages):
            header = header_of(message.value, crawl)
            if header is None or not is_wanted(header):
                continue
            bytes_found += len(message.value)
            if records and (len(records) >= limit or bytes_found > _MAX_BYTES):
                await reader.acknowledge(messages[:index])  # the cursor then points at this record
                return records, True
            records.append(_with_time_zone(message.value, header.timestamp))
        messages_read += len(messages)
        await reader.acknowledge(messages)
        if reader.is_at_end():
            return records, False
    return records, True


def _with_time_zone(record: bytes, timestamp: Any) -> msgspec.Raw:
    """Return the record with a time zone in its `timestamp`. On the bus it is UTC without one, as in Scrapy Cluster."""
    try:
        if datetime.fromisoformat(timestamp).tzinfo is not None:
            return msgspec.Raw(record)
    except (TypeError, ValueError):
        return msgspec.Raw(record)
    fields: dict[str, Any] = _decode_fields(record) | {"timestamp": f"{timestamp}+00:00"}
    return msgspec.Raw(msgspec.json.encode(fields))


def encode_cursor(bus_cursor: str) -> str:
    """Return the bus's cursor in characters that a URL need not encode. Clients keep it, so the form is fixed."""
    return base64.urlsafe_b64encode(bus_cursor.encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> str:
    """Reverse `encode_cursor`. Raises BadInput."""
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadInput("cursor: not a cursor of this endpoint") from None
