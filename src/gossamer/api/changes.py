"""Endpoint for the changes of a crawl that is kept up to date.

Fixed: the form of an answer and of its cursor, which clients keep.
"""

import asyncio
from typing import Annotated

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from gossamer.api.context import CRAWL_PATH, Context, PathCrawl
from gossamer.api.openapi import Limit, ResponseModel, refusals
from gossamer.api.problems import not_found
from gossamer.errors import BadInput
from gossamer.fresh.page import Change
from gossamer.fresh.store import IndexStore
from gossamer.model.crawl import CrawlId

router = APIRouter(prefix=CRAWL_PATH, tags=["crawls"])


class ChangePage(ResponseModel):
    """Some changes, oldest first."""

    items: list[dict[str, object]]
    """Changes as in the topic `<prefix>.changes`, without `appid` and `crawlid`"""
    cursor: int
    """`since` of the next call, which may be made now or later"""
    more: bool
    """True: there are more changes now. False: there are none at present"""


@router.get(
    "/changes",
    operation_id="crawl_changes",
    summary="Return the changes of a crawl that is kept up to date",
    responses={200: {"description": "Some changes", "model": ChangePage}, **refusals(400, 404, 503)},
)
async def list_changes(
    context: Context,
    crawl: PathCrawl,
    since: Annotated[int, Query(description="Cursor of the last change that was read; 0: from the oldest", ge=0)] = 0,
    limit: Limit = 100,
) -> Response:
    """New, changed, gone and returned pages, for a crawl that was submitted with `recrawl`. The last million changes
    are kept; an older cursor is refused."""
    if context.indexes is None:
        raise not_found("this service keeps no crawls up to date: it has no database for their page indexes")
    found = await asyncio.to_thread(_changes, context.indexes, crawl, since, limit + 1)
    items = found[:limit]
    body = {"items": items, "cursor": items[-1].cursor if items else since, "more": len(found) > limit}
    return Response(msgspec.json.encode(body), media_type="application/json")


def _changes(store: IndexStore, crawl: CrawlId, since: int, limit: int) -> list[Change]:
    try:
        index = store.find(crawl)
    except BadInput as error:
        raise not_found(error.detail) from None
    try:
        return index.changes(since, limit)
    finally:
        index.close()
