"""Who works."""

from fastapi import APIRouter

from gossamer.api.describe import Shape, refusals
from gossamer.api.parts import Given
from gossamer.control import stats

ROLES = (stats.INTAKE, stats.ACTIONS, stats.REST, stats.CRAWLER)

router = APIRouter(prefix="/v1/workers", tags=["cluster"])


class Worker(Shape):
    """A worker with a seat at the frontier."""

    name: str
    """host-pid-random"""
    silent_seconds: float
    """Since its last sign of life"""
    leased: int
    """Requests that it holds"""


class Workers(Shape):
    """Workers, and the processes of every role."""

    items: list[Worker]
    processes: dict[str, dict[str, list[str]]]
    """By role and host, their ids; those that said within two minutes that they live"""


@router.get("", operation_id="workers", summary="Workers and services", response_model=Workers, responses=refusals(503))
async def workers(parts: Given) -> Workers:
    """Who was heard of lately; one that dies is gone from here after the setting worker.heartbeat."""
    return Workers(
        items=[
            Worker(name=worker.name, silent_seconds=round(worker.silent_seconds, 3), leased=worker.leased)
            for worker in await parts.frontier.workers()
        ],
        processes=await parts.counters.all_nodes(ROLES),
    )
