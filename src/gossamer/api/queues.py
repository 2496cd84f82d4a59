"""What waits, whosever crawl it is."""

from typing import Annotated

from fastapi import APIRouter, Path

from gossamer.api.context import Given
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals

router = APIRouter(prefix="/v1/queues", tags=["cluster"])


class Queue(ResponseModel):
    """What waits for one spider."""

    spiderid: str
    queued: int
    domains: int
    """With queued requests"""


class Queues(ResponseModel):
    """What waits, by spider."""

    total: int
    items: list[Queue]


class DomainBacklog(ResponseModel):
    """What waits for a spider on one domain."""

    domain: str
    queued: int


class DomainBacklogs(ResponseModel):
    """Some of the domains."""

    items: list[DomainBacklog]
    cursor: str
    """Where the next page begins; empty at the end"""


@router.get("", operation_id="queues", summary="Backlogs by spider", response_model=Queues, responses=refusals(503))
async def queues(parts: Given) -> Queues:
    """Of all crawls, whoever began them; from counters. Retries that are not due are left out."""
    found = await parts.frontier.backlog()
    return Queues(
        total=sum(backlog.queued for backlog in found),
        items=[Queue(spiderid=b.spider, queued=b.queued, domains=b.domains) for b in found],
    )


@router.get(
    "/{spiderid:name}/domains",
    operation_id="queue_domains",
    summary="One spider's backlog by domain",
    response_model=DomainBacklogs,
    responses=refusals(400, 503),
)
async def domains(
    parts: Given,
    spiderid: Annotated[str, Path(description="Whose", examples=["link"])],
    cursor: Cursor = "",
    limit: Limit = 100,
) -> DomainBacklogs:
    """By page. A domain whose urgency changes meanwhile may be on two pages or on none."""
    found, following = await parts.frontier.backlog_domains(spiderid, cursor=cursor, limit=limit)
    return DomainBacklogs(
        items=[DomainBacklog(domain=domain, queued=queued) for domain, queued in found], cursor=following
    )
