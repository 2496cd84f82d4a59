"""Who works."""

from fastapi import APIRouter

from gossamer.api.context import Given
from gossamer.api.openapi import ResponseModel, refusals
from gossamer.control import stats

ROLES = (stats.INTAKE, stats.ACTIONS, stats.REST, stats.CRAWLER)

router = APIRouter(prefix="/v1/workers", tags=["cluster"])


class WorkerStatus(ResponseModel):
    """A worker with a seat at the frontier."""

    name: str
    """host-pid-random"""
    silent_seconds: float
    """Since its last sign of life"""
    leased: int
    """Requests that it holds"""


class WorkerList(ResponseModel):
    """Workers, and the processes of every role."""

    items: list[WorkerStatus]
    processes: dict[str, dict[str, list[str]]]
    """By role and host, their ids; those that said within two minutes that they live"""


@router.get(
    "", operation_id="workers", summary="Workers and services", response_model=WorkerList, responses=refusals(503)
)
async def workers(parts: Given) -> WorkerList:
    """Who was heard of lately; one that dies is gone from here after the setting worker.heartbeat."""
    return WorkerList(
        items=[
            WorkerStatus(name=worker.name, silent_seconds=round(worker.silent_seconds, 3), leased=worker.leased)
            for worker in await parts.frontier.workers()
        ],
        processes=await parts.counters.all_nodes(ROLES),
    )
