"""Prometheus's metrics of this process."""

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from gossamer.api.parts import Given

router = APIRouter(tags=["health"])


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
    return Response(parts.metrics.shown(), media_type=CONTENT_TYPE_LATEST)
