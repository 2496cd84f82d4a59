"""Endpoints about the state of the service, for probes, monitoring and operators: health, metrics, workers, backlogs
and statistics.

The frontier is the cluster's queue of requests; the bus carries messages between the cluster and its clients. A backlog
is the number of requests that wait. Fixed, because clients and probes use them: paths, HTTP status codes and names of
fields; fields may be added. /healthz must not ask other services: an outage of one would restart every process.
docs/reference/openapi.json is generated from the summaries, descriptions and docstrings of endpoints."""

import asyncio
import bisect
import contextlib
import heapq
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

from fastapi import APIRouter, Path, Query
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, PlainTextResponse, Response

from gossamer.api import openapi as describe
from gossamer.api.context import ApiContext, Context
from gossamer.api.openapi import Cursor, Limit, ResponseModel, refusals
from gossamer.api.problems import OUTAGE_RETRY_SECONDS, bad_request
from gossamer.control import stats
from gossamer.control.process_facts import ProcessFacts, read_facts
from gossamer.errors import BusError, FrontierError
from gossamer.telemetry.logs import service_troubles

T = TypeVar("T")

_PING_SECONDS = 2.0
"""Time in which the frontier and the bus must answer. Must stay below the timeout of the readiness probes that call
/readyz."""
_ROLES = (stats.INTAKE, stats.ACTIONS, stats.REST, stats.CRAWLER)
"""Kinds of processes that are listed, by Scrapy Cluster's names. Kinds may be added; each must write heartbeats to the
statistics (`stats.Counters`)."""

health = APIRouter(tags=["health"])
cluster = APIRouter(prefix="/v1", tags=["cluster"])


async def is_bus_available(context: ApiContext) -> bool:
    """Return whether the bus answers in time."""
    return await _answers(context.bus.ping())


async def is_frontier_available(context: ApiContext) -> bool:
    """Return whether every server of the frontier answers in time."""
    return await _answers(context.shards.everywhere("PING"))


def waited_for(troubles: dict[str, dict[str, str]]) -> list[str]:
    """Return the names of the troubles of these processes for which the service itself waits, sorted."""
    return service_troubles(name for messages in troubles.values() for name in messages)


async def troubles_everywhere(context: ApiContext) -> dict[str, dict[str, str]]:
    """Return the troubles of all processes of the cluster, by process: messages by name. Without the frontier, only
    those of this process are known."""
    found: dict[str, dict[str, str]] = {}
    with contextlib.suppress(FrontierError, TimeoutError):
        async with asyncio.timeout(_PING_SECONDS):
            found = await context.counters.troubles()
    own = f"{socket.gethostname()}:{context.id}"
    found.pop(own, None)
    return found | ({own: dict(context.troubles)} if context.troubles else {})


async def _answers(call: Awaitable[object]) -> bool:
    """Return whether the call succeeds within `_PING_SECONDS`."""
    try:
        async with asyncio.timeout(_PING_SECONDS):
            await call
    except (FrontierError, BusError, TimeoutError):
        return False
    return True


@health.get(
    "/healthz",
    operation_id="healthz",
    summary="Liveness probe",
    responses={200: describe.response({"status": "ok"}, description="The process is alive")},
)
async def healthz() -> Response:
    """Depends on no other service and needs no token. Restart a process that does not answer."""
    return JSONResponse({"status": "ok"})


@health.get(
    "/readyz",
    operation_id="readyz",
    summary="Readiness probe",
    responses={
        200: describe.response(
            {"status": "ready", "frontier": True, "bus": True, "troubles": []},
            description="The frontier and the bus answer. `status` is `degraded` if a process of the cluster waits for "
            "something, such as `app_output`: the topic or database of an application cannot be written",
        ),
        503: describe.response(
            {"status": "waiting", "frontier": True, "bus": False, "troubles": ["intake"]},
            description="The frontier or the bus does not answer",
        ),
    },
)
async def readyz(context: Context) -> Response:
    """200 while the frontier and the bus answer. Send no requests to a process that returns 503. `troubles` names what
    the processes of the cluster wait for; `/v1/workers` has the messages."""
    frontier, bus, troubles = await asyncio.gather(
        is_frontier_available(context), is_bus_available(context), troubles_everywhere(context)
    )
    ready = frontier and bus
    names = waited_for(troubles)
    status = "waiting" if not ready else "degraded" if names else "ready"
    return JSONResponse(
        {"status": status, "frontier": frontier, "bus": bus, "troubles": names},
        status_code=200 if ready else 503,
        headers={} if ready else {"Retry-After": str(OUTAGE_RETRY_SECONDS)},
    )


@health.get(
    "/metrics",
    response_class=PlainTextResponse,
    operation_id="metrics",
    summary="Prometheus metrics of this process",
    responses={
        200: {
            "description": "Metrics in Prometheus's text format",
            "content": {"text/plain": {"example": "gossamer_workers 4.0\n"}},
        }
    },
)
async def metrics(context: Context) -> Response:
    """Every process has its own metrics; scrape all of them. The metrics reference describes each."""
    return Response(context.metrics.render(), media_type=CONTENT_TYPE_LATEST)


# --- workers ----------------------------------------------------------------------------------------------------------


class WorkerStatus(ResponseModel):
    """A worker that is connected to the frontier."""

    name: str
    """Host, process id and a random part"""
    silent_seconds: float
    """Seconds since its last heartbeat"""
    leased: int
    """Requests that it holds"""
    browser: bool
    """It has a browser, and takes requests that are to be rendered"""


class ProcessTrouble(ResponseModel):
    """Something that a process waits for."""

    process: str
    """Host and id of the process"""
    name: str
    """Kind of the trouble, such as `app_output`, as in the metric gossamer_trouble"""
    message: str


class ProcessStatus(ResponseModel):
    """A process of the service, as it reported itself in the last 30 seconds."""

    process: str
    """Host and id of the process"""
    worker: str
    """Name of its worker, as in `items`; empty: it has none"""
    roles: list[str]
    """Kinds of services that it runs"""
    version: str
    """Version of Gossamer"""
    python: str
    started: float
    """Epoch seconds"""
    memory_bytes: int
    cpu: float
    """Cores that it uses; for services, the mean since the start"""
    lag_seconds: float
    """Time until its event loop handles something new"""
    pages_per_second: float
    finding: str
    """Clause that says what limits a worker, as `gossamer diagnose` does; empty: not known"""
    advice: str


class WorkerList(ResponseModel):
    """A page of the workers, by name; and processes of every role, and their troubles, as many at most as the page may
    have entries."""

    items: list[WorkerStatus]
    cursor: str
    """Start of the next page; empty if this is the last one"""
    processes: dict[str, dict[str, list[str]]]
    """Ids of processes with a heartbeat in the last two minutes, by role and host"""
    troubles: list[ProcessTrouble]
    """Troubles that processes have reported in the last 30 seconds"""
    facts: list[ProcessStatus]
    """Processes of the workers of this page that report facts about themselves"""


class ProcessList(ResponseModel):
    """A page of the processes that run services and no worker, by name."""

    items: list[ProcessStatus]
    cursor: str
    """Start of the next page; empty if this is the last one"""


class ProcessCounts(ResponseModel):
    """Counts of all workers and processes, and the first of their troubles."""

    workers: int
    leased: int
    """Requests that the workers hold"""
    pages_per_second: float
    services: int
    """Processes that run services and no worker"""
    versions: list[str]
    """Versions of Gossamer that run, 10 at most"""
    troubles: list[ProcessTrouble]
    """Troubles that processes have reported in the last 30 seconds, 20 at most"""
    trouble_count: int
    """Number of all of them"""


_NAMES = ("process", "worker")
"""Fields of ProcessStatus that its facts have under another name, or not."""
_VERSIONS = 10
_TROUBLES = 20


async def _processes(context: ApiContext) -> dict[str, ProcessFacts]:
    """Return the facts that processes report, by process and sorted. Facts of another version's form are left out."""
    reported = {process: read_facts(text) for process, text in sorted((await context.counters.facts()).items())}
    return {process: facts for process, facts in reported.items() if facts is not None}


def _status_of(process: str, facts: ProcessFacts) -> ProcessStatus:
    fields = {name: getattr(facts, name) for name in ProcessStatus.model_fields if name not in _NAMES}
    return ProcessStatus(process=process, worker=facts.name, **fields)


async def _troubles(context: ApiContext) -> list[ProcessTrouble]:
    return [
        ProcessTrouble(process=process, name=name, message=message)
        for process, messages in sorted((await troubles_everywhere(context)).items())
        for name, message in sorted(messages.items())
    ]


@cluster.get(
    "/workers",
    operation_id="workers",
    summary="List workers and services",
    response_model=WorkerList,
    responses=refusals(400, 503),
)
async def list_workers(context: Context, cursor: Cursor = "", limit: Limit = 100) -> WorkerList:
    """A worker that dies disappears from the list after the time of the setting worker.heartbeat."""
    workers, reported, troubles, processes = await asyncio.gather(
        context.frontier.workers(), _processes(context), _troubles(context), context.counters.all_nodes(_ROLES)
    )
    page, next_cursor = _page(workers, cursor, limit, key=lambda worker: worker.name)
    names = {worker.name for worker in page}
    return WorkerList(
        items=[WorkerStatus.of(worker, silent_seconds=round(worker.silent_seconds, 3)) for worker in page],
        cursor=next_cursor,
        processes={role: _first_ids(hosts, limit) for role, hosts in processes.items()},
        troubles=troubles[:limit],
        facts=[_status_of(process, facts) for process, facts in reported.items() if facts.name in names],
    )


@cluster.get(
    "/processes",
    operation_id="processes",
    summary="List the processes that run services",
    response_model=ProcessList,
    responses=refusals(400, 503),
)
async def list_processes(context: Context, cursor: Cursor = "", limit: Limit = 100) -> ProcessList:
    """A process that ends disappears from the list; one that is killed, after 30 seconds."""
    services = [(process, facts) for process, facts in (await _processes(context)).items() if not facts.name]
    page, next_cursor = _page(services, cursor, limit, key=lambda pair: pair[0])
    return ProcessList(items=[_status_of(*pair) for pair in page], cursor=next_cursor)


@cluster.get(
    "/worker-counts",
    operation_id="worker_counts",
    summary="Count workers and services",
    response_model=ProcessCounts,
    responses=refusals(503),
)
async def count_workers(context: Context) -> ProcessCounts:
    """The answer has the same size whatever the number of workers."""
    workers, reported, troubles = await asyncio.gather(
        context.frontier.workers(), _processes(context), _troubles(context)
    )
    return ProcessCounts(
        workers=len(workers),
        leased=sum(worker.leased for worker in workers),
        pages_per_second=sum(facts.pages_per_second for facts in reported.values()),
        services=sum(not facts.name for facts in reported.values()),
        versions=sorted({facts.version for facts in reported.values()})[:_VERSIONS],
        troubles=troubles[:_TROUBLES],
        trouble_count=len(troubles),
    )


def _page(found: Sequence[T], cursor: str, limit: int, *, key: Callable[[T], str]) -> tuple[Sequence[T], str]:
    """Return the entries of a sorted list after those that a cursor stands for, and the cursor of the next page; empty:
    there is none."""
    first = bisect.bisect_right(found, cursor, key=key)
    page = found[first : first + limit]
    return page, key(page[-1]) if len(found) > first + limit else ""


def _first_ids(hosts: dict[str, list[str]], limit: int) -> dict[str, list[str]]:
    """Return the first ids of processes, by host."""
    found: dict[str, list[str]] = {}
    for host, ids in sorted(hosts.items()):
        if limit <= 0:
            break
        found[host], limit = sorted(ids)[:limit], limit - len(ids)
    return found


# --- speed over time --------------------------------------------------------------------------------------------------


class ServiceRateModel(ResponseModel):
    """Speed of all workers in a minute."""

    at: float
    """Epoch seconds of the minute's begin"""
    pages_per_second: float
    """Mean of the samples of the minute"""
    waiting: int
    """Requests that waited at its end"""


class ServiceRates(ResponseModel):
    """Speed of the service in the latest minutes, the earliest of them first. Minutes in which no service ran are left
    out."""

    items: list[ServiceRateModel]
    remembered: bool
    """False: the service keeps no history"""


@cluster.get(
    "/rates",
    operation_id="rates",
    summary="Return the speed of the service over time",
    response_model=ServiceRates,
    responses=refusals(400, 503),
)
async def service_rates(
    context: Context, minutes: Annotated[int, Query(ge=1, le=1440, description="Number of the latest minutes")] = 180
) -> ServiceRates:
    """Needs a history (the setting history.database), which remembers the last 24 hours."""
    rows = await context.history.service_rates(minutes) if context.history is not None else []
    return ServiceRates(
        items=[ServiceRateModel.of(row, at=row.minute * 60.0) for row in rows], remembered=context.history is not None
    )


# --- backlogs ---------------------------------------------------------------------------------------------------------


class SpiderBacklog(ResponseModel):
    """Queued requests of one spider."""

    spiderid: str
    queued: int
    domains: int
    """Domains with queued requests"""


class SpiderBacklogs(ResponseModel):
    """Queued requests of all spiders together, and those of the spiders with most."""

    total: int
    items: list[SpiderBacklog]
    spiders: int
    """Spiders with queued requests"""


class DomainBacklog(ResponseModel):
    """Queued requests of a spider on one domain."""

    domain: str
    queued: int


class DomainBacklogs(ResponseModel):
    """A page of domains with queued requests."""

    items: list[DomainBacklog]
    cursor: str
    """Start of the next page; empty if this is the last one"""


@cluster.get(
    "/queues",
    operation_id="queues",
    summary="List backlogs by spider",
    response_model=SpiderBacklogs,
    responses=refusals(400, 503),
)
async def list_backlogs(context: Context, limit: Limit = 100) -> SpiderBacklogs:
    """Covers all crawls of all applications, and reads only counters. Retries that are not yet due are not counted."""
    backlogs = await context.frontier.backlog()
    return SpiderBacklogs(
        total=sum(backlog.queued for backlog in backlogs),
        items=[
            SpiderBacklog.of(backlog, spiderid=backlog.spider)
            for backlog in heapq.nlargest(limit, backlogs, key=lambda backlog: backlog.queued)
        ],
        spiders=len(backlogs),
    )


@cluster.get(
    "/queues/{spiderid:name}/domains",
    operation_id="queue_domains",
    summary="List one spider's backlog by domain",
    response_model=DomainBacklogs,
    responses=refusals(400, 503),
)
async def list_domain_backlogs(
    context: Context,
    spiderid: Annotated[str, Path(description="The spider", examples=["link"])],
    cursor: Cursor = "",
    limit: Limit = 100,
) -> DomainBacklogs:
    """A domain whose highest priority changes between two calls may be on two pages, or on none."""
    backlogs, next_cursor = await context.frontier.backlog_domains(spiderid, cursor=cursor, limit=limit)
    return DomainBacklogs(
        items=[DomainBacklog(domain=domain, queued=queued) for domain, queued in backlogs], cursor=next_cursor
    )


# --- statistics -------------------------------------------------------------------------------------------------------


@cluster.get(
    "/stats",
    operation_id="stats",
    summary="Return statistics over windows of time",
    responses={
        200: describe.response(
            {
                "spiders": {
                    "unique_spider_count": 1,
                    "total_spider_count": 1,
                    "link": {"count": 1, "200": {"900": 41, "3600": 180, "lifetime": 5120}},
                }
            },
            description="The fields of the statistics answer. The names of windows are their seconds, and `lifetime`",
        ),
        **refusals(400, 503),
    },
)
async def statistics(
    context: Context,
    kind: Annotated[
        str,
        Query(alias="stats", description="Kind of statistics to return", json_schema_extra={"enum": list(stats.KINDS)}),
    ] = "all",
) -> Response:
    """Returns what a stats request returns, without the ids."""
    if kind not in stats.KINDS:
        raise bad_request(f"must be one of {', '.join(stats.KINDS)}", where="stats")
    return JSONResponse(await stats.body(context.frontier, context.counters, kind))
