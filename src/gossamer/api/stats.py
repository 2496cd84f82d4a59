"""Statistics, as Scrapy Cluster's."""

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response

from gossamer.api import openapi as describe
from gossamer.api.context import Given
from gossamer.api.openapi import refusals
from gossamer.api.problems import bad_request
from gossamer.control import stats

router = APIRouter(prefix="/v1/stats", tags=["cluster"])


@router.get(
    "",
    operation_id="stats",
    summary="Counters over windows of time",
    responses={
        200: describe.answer(
            {
                "spiders": {
                    "unique_spider_count": 1,
                    "total_spider_count": 1,
                    "link": {"count": 1, "200": {"900": 41, "3600": 180, "lifetime": 5120}},
                }
            },
            description="The body of the stats answer; windows are seconds, and `lifetime`",
        ),
        **refusals(400, 503),
    },
)
async def statistics(
    parts: Given,
    kind: Annotated[
        str, Query(alias="stats", description="Which", json_schema_extra={"enum": list(stats.KINDS)})
    ] = "all",
) -> Response:
    """The same as a stats request, without the ids."""
    if kind not in stats.KINDS:
        raise bad_request(f"must be one of {', '.join(stats.KINDS)}", where="stats")
    return JSONResponse(await stats.body(parts.frontier, parts.counters, kind))
