"""Endpoints of schedules: create, list, show, change, run, delete. `schedule_models.py` has their bodies.

Fixed, because clients read them: paths, names of fields, status codes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Response
from sqlalchemy import Connection

from gossamer.errors import BadInput
from gossamer_platform.manager.operations import JobConflict, new_job_name
from gossamer_platform.names import check_file_name
from gossamer_platform.schedules.firing import start_schedule
from gossamer_platform.state import crawl_firings, schedules
from gossamer_platform.state.row_page import RowPage
from gossamer_platform.state.schedules import Schedule
from gossamer_platform.state.tables import CrawlFiring
from gossamer_platform.state.tokens import TokenScope
from gossamer_platform.v1.access import NotPermitted
from gossamer_platform.v1.context import RESPONSES, Client, Reader, Runner
from gossamer_platform.v1.jobs import shown_job
from gossamer_platform.v1.models import JobModel
from gossamer_platform.v1.pages import AfterId, LatestFirst, PageLimit, PageStart, cut_page, parse_cursor
from gossamer_platform.v1.schedule_models import (
    ComingTimes,
    CrawlFiringModel,
    CrawlFiringPage,
    NewScheduleModel,
    ScheduleChange,
    ScheduleModel,
    ScheduleTimes,
)

router = APIRouter(prefix="/v1/schedules", tags=["schedules"], responses=RESPONSES)

_TIMING: Final = frozenset({"cron", "every", "at", "time_zone", "start", "end", "jitter"})
"""Fields that decide on a schedule's times."""
_Id = Annotated[int, Path(ge=1, lt=2**63, description="Number of the schedule.")]


@router.post("", status_code=201, summary="Create a schedule")
async def create_schedule(schedule: NewScheduleModel, client: Runner) -> ScheduleModel:
    """Create a schedule, which makes a job, or submits crawl requests, at each of its times."""
    client.check_project(schedule.project)
    manager = client.context.manager
    now = await manager.read(schedules.database_time)
    rule = schedule.rule(now)
    if rule.next_after(now) is None:
        raise BadInput("the schedule has no time that is still to come")
    check_file_name(schedule.name, schedule.name)
    columns = schedule.columns(rule)
    await _check_work(client, schedule, columns["crawl"])

    def add(connection: Connection) -> Schedule:
        number = schedules.add_schedule(connection, schedule.project, schedule.name, columns)
        if number is None:
            raise JobConflict(f"project '{schedule.project}' has a schedule {schedule.name} already")
        start_schedule(connection, number)
        row = schedules.find_schedule(connection, number)
        assert row is not None
        return row

    row = await manager.database.write(add)
    client.name_change("schedule.create", f"{row.id} {row.project}/{row.name}")
    return _shown(client, row)


@router.get("", summary="List schedules")
async def list_schedules(
    client: Reader,
    project: str = "",
    after: AfterId = "",
    limit: PageLimit = 100,
    latest_first: LatestFirst = False,
) -> list[ScheduleModel]:
    """Return schedules in the order of their creation."""
    wanted, page = client.listed_project(project), RowPage(parse_cursor(after), limit, latest_first)
    rows = await client.context.manager.read(lambda c: schedules.list_schedules(c, wanted, page))
    return [_shown(client, row) for row in rows]


@router.get("/times", summary="Preview the times of a schedule")
async def preview_times(client: Reader, given: Annotated[ScheduleTimes, Query()]) -> ComingTimes:
    """Return the next times of a rule, as a schedule that is created now would have them. Nothing is stored."""
    now = await client.context.manager.read(schedules.database_time)
    return ComingTimes.of(given.rule(now), after=now)


@router.get("/{schedule_id}", summary="Show a schedule")
async def get_schedule(schedule_id: _Id, client: Reader) -> ScheduleModel:
    """Return a schedule."""
    return _shown(client, await _schedule(client, schedule_id))


@router.patch("/{schedule_id}", summary="Change, pause or resume a schedule")
async def change_schedule(schedule_id: _Id, change: ScheduleChange, client: Runner) -> ScheduleModel:
    """Change a schedule: its times, the job that it makes, or whether it is paused. Times that came while it was paused
    are left out."""
    row = await _schedule(client, schedule_id)
    manager = client.context.manager
    given = change.model_fields_set
    now = await manager.read(schedules.database_time)
    new = change.applied_to(row)
    columns = new.columns(new.rule(now)) if given - {"paused"} else {}
    if given & {"spider", "version", "crawl", "settings"}:
        await _check_work(client, new, columns["crawl"])
    if change.paused is not None:
        columns["paused"] = change.paused

    def update(connection: Connection) -> None:
        schedules.change_schedule(connection, schedule_id, **columns)
        if given & _TIMING or (row.paused and change.paused is False):
            start_schedule(connection, schedule_id)

    if columns:
        await manager.database.write(update)
    client.name_change("schedule.change", f"{row.id} {row.project}/{row.name} {', '.join(sorted(given))}")
    return _shown(client, await _schedule(client, schedule_id))


@router.post("/{schedule_id}/run", status_code=201, summary="Make the job of a schedule now")
async def run_schedule(
    schedule_id: _Id,
    client: Runner,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=150)] = None,
) -> JobModel | CrawlFiringModel:
    """Make a job as the schedule would, at once, beside those of its times; also if it is paused. A schedule of crawl
    requests submits them: the answer, with status 202, says that they wait for the crawl service.

    With a header Idempotency-Key the request may be repeated: the second one returns the same job, with status 200.
    """
    row = await _schedule(client, schedule_id)
    manager = client.context.manager
    name = new_job_name()
    if row.crawl is not None:
        client.context.crawl_service.require()
        key = f"run:{idempotency_key or name}"

        def fire(connection: Connection) -> CrawlFiring:
            now = schedules.database_time(connection)
            return crawl_firings.add_firing(connection, row, instant=now, name=key)

        firing = await manager.database.write(fire)
        client.name_change("schedule.run", f"{row.id} {row.project}/{row.name}")
        response.status_code = 202
        return CrawlFiringModel.of(firing, client.context.crawl_service)
    key = f"run:{schedule_id}:{idempotency_key}"
    found, created = await manager.create_job(
        schedules.job_of(row, name=f"{row.name}-{name}", request_key=key if idempotency_key else None)
    )
    if created:
        client.name_change("schedule.run", f"{row.id} {row.project}/{row.name} job {found.id}")
    else:
        response.status_code = 200
    return await shown_job(client, found)


@router.get("/{schedule_id}/firings", summary="List the times at which a schedule submitted crawl requests")
async def list_firings(
    schedule_id: _Id,
    client: Reader,
    after: PageStart = "",
    limit: PageLimit = 100,
) -> CrawlFiringPage:
    """Return what became of the crawl requests of a schedule, the latest first. Those that have ended are kept for 7
    days. For a schedule of jobs the list is empty: `/v1/jobs` has them, by `schedule`."""
    await _schedule(client, schedule_id)
    before = parse_cursor(after)
    rows = await client.context.manager.read(
        lambda c: crawl_firings.firing_page(c, schedule_id, before=before, limit=limit + 1)
    )
    page, following = cut_page(rows, limit)
    firings = [CrawlFiringModel.of(row, client.context.crawl_service) for row in page]
    return CrawlFiringPage(firings=firings, next=following)


@router.delete("/{schedule_id}", status_code=204, summary="Delete a schedule")
async def delete_schedule(schedule_id: _Id, client: Runner) -> Response:
    """Delete a schedule. The jobs that it has made stay."""
    row = await _schedule(client, schedule_id)
    await client.context.manager.database.write(lambda c: schedules.delete_schedule(c, schedule_id))
    client.name_change("schedule.delete", f"{row.id} {row.project}/{row.name}")
    return Response(status_code=204)


async def _check_work(client: Client, schedule: NewScheduleModel, requests: Sequence[Mapping[str, Any]] | None) -> None:
    """Raise an error unless the schedule's spider exists, or the client may submit the crawl requests."""
    if requests is None:
        assert schedule.spider is not None
        client.check_settings(schedule.settings)
        await client.context.manager.require_spider(schedule.project, schedule.version, schedule.spider)
        return
    client.context.crawl_service.require()
    own = client.principal.project
    for number, request in enumerate(requests if own else ()):
        if request["appid"] != own:
            raise NotPermitted(f"appid: {client.principal.name} may crawl as {own} only, not as {request['appid']}")
        if request.get("login"):  # the platform's token, which submits it, may use the logins of every project
            raise NotPermitted(
                f"crawl[{number}].login: the logins of the crawl service belong to all projects; the token of "
                f"{client.principal.name} is for {own} only. Use a token for all projects"
            )


def _shown(client: Client, row: Schedule) -> ScheduleModel:
    """Return the model of a schedule for a client. Only one that may change it reads the secrets of its requests."""
    return ScheduleModel.of(row, with_secrets=client.principal.scope.includes(TokenScope.RUN))


async def _schedule(client: Client, number: int) -> Schedule:
    """Return a schedule that the client may see. Raises NotFound."""
    row = await client.context.manager.read(lambda c: schedules.find_schedule(c, number))
    return client.visible(row, f"schedule {number}")
