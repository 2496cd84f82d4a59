"""Whether this process lives, and whether it can serve."""

import asyncio
from collections.abc import Awaitable

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from gossamer.api import openapi as describe
from gossamer.api.context import ApiContext, Given
from gossamer.errors import BusError, FrontierError

router = APIRouter(tags=["health"])


_SECONDS = 2.0


async def is_bus_there(parts: ApiContext) -> bool:
    """Within two seconds."""
    return await _is_there(parts.bus.ping())


async def is_frontier_there(parts: ApiContext) -> bool:
    """The same of every server of the frontier."""
    return await _is_there(parts.shards.everywhere("PING"))


async def _is_there(asked: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(_SECONDS):
            await asked
    except (FrontierError, BusError, TimeoutError):
        return False
    return True


@router.get(
    "/healthz",
    operation_id="healthz",
    summary="Whether this process lives",
    responses={200: describe.answer({"status": "ok"})},
)
async def healthz() -> Response:
    """Asks nobody else and needs no token: restart a process that does not answer this."""
    return JSONResponse({"status": "ok"})


@router.get(
    "/readyz",
    operation_id="readyz",
    summary="Whether it can serve",
    responses={
        200: describe.answer({"status": "ready", "frontier": True, "bus": True}),
        503: describe.answer({"status": "waiting", "frontier": True, "bus": False}, description="What is away"),
    },
)
async def readyz(parts: Given) -> Response:
    """200 while the frontier and the bus answer; send no requests here while it is 503."""
    frontier, bus = await asyncio.gather(is_frontier_there(parts), is_bus_there(parts))
    ready = frontier and bus
    return JSONResponse(
        {"status": "ready" if ready else "waiting", "frontier": frontier, "bus": bus},
        status_code=200 if ready else 503,
        headers={} if ready else {"Retry-After": "5"},
    )


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    operation_id="metrics",
    summary="Prometheus's metrics of this process",
    responses={
        200: {
            "description": "In Prometheus's text format",
            "content": {"text/plain": {"example": "gossamer_workers 4.0\n"}},
        }
    },
)
async def metrics(parts: Given) -> Response:
    """Every process has its own; what they mean is in the reference of the metrics."""
    return Response(parts.metrics.render(), media_type=CONTENT_TYPE_LATEST)
