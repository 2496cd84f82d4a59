"""Endpoints of schedules: create, list, show, change, run, delete.

Fixed, because clients read them: paths, names of fields, status codes.
"""

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Row

from gossamer.errors import BadInput
from gossamer.platform.manager.operations import JobConflict, NotFound, new_job_name
from gossamer.platform.names import check_file_name
from gossamer.platform.schedules.firing import rule_of, start_schedule
from gossamer.platform.schedules.timing import RuleKind, ScheduleRule, checked_rule
from gossamer.platform.state import schedules
from gossamer.platform.v1.context import Client, Reader, Runner
from gossamer.platform.v1.jobs import MAX_PAGE, parse_cursor, shown_job
from gossamer.platform.v1.models import JobModel, JobPolicyModel

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])

_TIMING: Final = frozenset({"cron", "every", "at", "time_zone", "start", "end", "jitter"})
"""Fields that decide on a schedule's times."""
_PREVIEW: Final = 5
"""Instants that are shown of a schedule. May be changed."""
_Name = Annotated[str, Field(min_length=1, max_length=100)]
_Id = Annotated[int, Path(ge=1, lt=2**63, description="Number of the schedule.")]


class NewScheduleModel(JobPolicyModel):
    """A schedule to create: exactly one of cron, every and at, and the job to make."""

    project: _Name
    spider: _Name
    name: _Name
    """Name of the schedule, which no other one of the project has."""
    cron: str | None = None
    """Five fields (minute, hour, day of the month, month, day of the week), or a name such as @daily."""
    every: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """Seconds between two jobs, counted from `start`."""
    at: AwareDatetime | None = None
    """Time of the only job."""
    time_zone: Annotated[str, Field(max_length=100)] = "UTC"
    """Time zone of the cron line, such as Europe/Berlin."""
    start: AwareDatetime | None = None
    """No job is made before this time. Null: from now on."""
    end: AwareDatetime | None = None
    """No job is made after this time. Null: there is no end."""
    jitter: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 0.0
    """Seconds by which a job is postponed at most, to spread those of many schedules. Always the same for one time."""
    missed: Literal["skip", "once"] = "skip"
    """After times that were missed by more than a minute: make no job, or one."""
    if_running: Literal["run", "skip", "queue"] = "run"
    """While the schedule's job before has not ended: make another one that may run beside it (run), make none (skip),
    or make one that starts when that one has ended (queue; at most 100 wait)."""
    version: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Version to run. Null: the project's latest when the job starts."""
    arguments: dict[str, str] = Field(default_factory=dict)
    settings: dict[str, str] = Field(default_factory=dict)
    priority: Annotated[float, Field(allow_inf_nan=False)] = 0.0

    def rule(self, now: float) -> ScheduleRule:
        """Return the rule. Raises BadInput with every fault."""
        given = [name for name in ("cron", "every", "at") if getattr(self, name) is not None]
        if len(given) != 1:
            raise BadInput(f"give exactly one of cron, every and at, not {' and '.join(given) or 'none'}")
        start = now if self.start is None else self.start.timestamp()
        end = None if self.end is None else self.end.timestamp()
        if self.at is not None:
            return checked_rule(ScheduleRule(RuleKind.ONCE, "", self.time_zone, self.at.timestamp(), end))
        if self.every is not None:
            return checked_rule(ScheduleRule(RuleKind.EVERY, repr(self.every), self.time_zone, start, end))
        return checked_rule(ScheduleRule(RuleKind.CRON, self.cron or "", self.time_zone, start, end))


class ScheduleChange(JobPolicyModel):
    """Changes of a schedule. A field that is absent stays as it is; jobs that it has made stay as they are."""

    paused: bool | None = None
    """True: no jobs are made until it is false again; times in between are left out."""
    cron: str | None = None
    """A new rule, as is `every` and `at`; it replaces the one before."""
    every: Annotated[float, Field(allow_inf_nan=False)] | None = None
    at: AwareDatetime | None = None
    time_zone: Annotated[str, Field(max_length=100)] | None = None
    start: AwareDatetime | None = None
    end: AwareDatetime | None = None
    """No job is made after this time. Null: there is no end any more."""
    jitter: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] | None = None
    missed: Literal["skip", "once"] | None = None
    if_running: Literal["run", "skip", "queue"] | None = None
    spider: _Name | None = None
    version: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Version to run. Null: the project's latest when a job starts."""
    arguments: dict[str, str] | None = None
    """All arguments; those of before are replaced."""
    settings: dict[str, str] | None = None
    priority: Annotated[float, Field(allow_inf_nan=False)] | None = None

    def applied_to(self, row: Row[Any]) -> NewScheduleModel:
        """Return the schedule as it would be created with these changes. Raises BadInput."""
        names = set(NewScheduleModel.model_fields)
        known = {name: getattr(row, name) for name in names if name in row._fields}
        known |= {"version": row.version_name, "start": _time(row.start_at), "end": _time(row.end_at), **row.policy}
        changes = self.model_dump(exclude_unset=True, exclude={"paused"})
        if not {"cron", "every", "at"} & set(changes):
            known |= {RuleKind.CRON: {"cron": row.rule}, RuleKind.ONCE: {"at": _time(row.start_at)}}.get(
                RuleKind(row.kind), {"every": row.rule}
            )
        may_be_null = {"version", "end", "start"}
        changes = {name: value for name, value in changes.items() if value is not None or name in may_be_null}
        return NewScheduleModel(**{**known, **changes})


class ScheduleModel(BaseModel):
    """A schedule."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    id: int
    project: str
    name: str
    kind: RuleKind
    rule: str
    """The cron line, or the seconds of an interval. Empty: there is a single time."""
    time_zone: str
    start: datetime
    end: datetime | None
    jitter: float
    missed: str
    if_running: str
    paused: bool
    spider: str
    version: str | None
    arguments: dict[str, str]
    settings: dict[str, str]
    priority: float
    next: list[datetime]
    """The next times, without their jitter. Empty: it has ended or is paused."""
    last: datetime | None
    """The last time that has come."""
    last_result: str
    """Result of that time: `job ID`, `missed`, or `skipped: …`."""

    @classmethod
    def of(cls, row: Row[Any]) -> "ScheduleModel":
        """Return the model of a row with `project`."""
        columns: dict[str, Any] = {name: getattr(row, name) for name in cls.model_fields if name in row._fields}
        columns |= {name: _time(getattr(row, f"{name}_at")) for name in ("start", "end", "last")}
        following = [] if row.paused else [datetime.fromtimestamp(at, UTC) for at in _instants(row)]
        return cls(**columns, version=row.version_name, next=following)


@router.post("", status_code=201, summary="Create a schedule")
async def create_schedule(schedule: NewScheduleModel, client: Runner) -> ScheduleModel:
    """Create a schedule, which makes a job at each of its times."""
    client.check_project(schedule.project)
    manager = client.context.manager
    now = await manager.read(schedules.database_time)
    rule = schedule.rule(now)
    if rule.next_after(now) is None:
        raise BadInput("the schedule has no time that is still to come")
    check_file_name(schedule.name, schedule.name)
    await manager.require_spider(schedule.project, schedule.version, schedule.spider)
    columns = _columns(schedule, rule)

    def add(connection: Connection) -> Row[Any]:
        number = schedules.add_schedule(connection, schedule.project, schedule.name, columns)
        if number is None:
            raise JobConflict(f"project '{schedule.project}' has a schedule {schedule.name} already")
        start_schedule(connection, number)
        row = schedules.find_schedule(connection, number)
        assert row is not None
        return row

    row = await manager.database.write(add)
    await client.record("schedule.create", f"{row.id} {row.project}/{row.name}")
    return ScheduleModel.of(row)


@router.get("", summary="List schedules")
async def list_schedules(
    client: Reader,
    project: str = "",
    after: Annotated[str, Query(description="Number of the last schedule of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> list[ScheduleModel]:
    """Return schedules in the order of their creation."""
    if project:
        client.check_project(project)
    wanted, first = project or client.principal.project, parse_cursor(after) or 0
    rows = await client.context.manager.read(lambda c: schedules.list_schedules(c, wanted, after=first, limit=limit))
    return [ScheduleModel.of(row) for row in rows]


@router.get("/{schedule_id}", summary="Show a schedule")
async def get_schedule(schedule_id: _Id, client: Reader) -> ScheduleModel:
    """Return a schedule."""
    return ScheduleModel.of(await _schedule(client, schedule_id))


def _columns(schedule: NewScheduleModel, rule: ScheduleRule) -> dict[str, Any]:
    fields = ("spider", "arguments", "settings", "priority", "jitter", "missed", "if_running")
    columns: dict[str, Any] = {name: getattr(schedule, name) for name in fields}
    columns |= {"kind": rule.kind.value, "rule": rule.text, "time_zone": rule.zone, "start_at": rule.start}
    return columns | {"end_at": rule.end, "version_name": schedule.version, "policy": schedule.policy().given()}


@router.patch("/{schedule_id}", summary="Change, pause or resume a schedule")
async def change_schedule(schedule_id: _Id, change: ScheduleChange, client: Runner) -> ScheduleModel:
    """Change a schedule: its times, the job that it makes, or whether it is paused. Times that came while it was paused
    are left out."""
    row = await _schedule(client, schedule_id)
    manager = client.context.manager
    given = change.model_fields_set
    now = await manager.read(schedules.database_time)
    new = change.applied_to(row)
    columns = _columns(new, new.rule(now)) if given - {"paused"} else {}
    if given & {"spider", "version"}:
        await manager.require_spider(row.project, new.version, new.spider)
    if change.paused is not None:
        columns["paused"] = change.paused

    def update(connection: Connection) -> None:
        schedules.change_schedule(connection, schedule_id, **columns)
        if given & _TIMING or (row.paused and change.paused is False):
            start_schedule(connection, schedule_id)

    if columns:
        await manager.database.write(update)
    await client.record("schedule.change", f"{row.id} {row.project}/{row.name} {', '.join(sorted(given))}")
    return ScheduleModel.of(await _schedule(client, schedule_id))


@router.post("/{schedule_id}/run", status_code=201, summary="Make the job of a schedule now")
async def run_schedule(
    schedule_id: _Id,
    client: Runner,
    response: Response,
    idempotency_key: Annotated[str | None, Header(max_length=150)] = None,
) -> JobModel:
    """Make a job as the schedule would, at once, beside those of its times; also if it is paused.

    With a header Idempotency-Key the request may be repeated: the second one returns the same job, with status 200.
    """
    row = await _schedule(client, schedule_id)
    manager = client.context.manager
    key = f"run:{schedule_id}:{idempotency_key}" if idempotency_key else None
    found, created = await manager.create_job(
        schedules.job_of(row, name=f"{row.name}-{new_job_name()}", request_key=key)
    )
    if created:
        await client.record("schedule.run", f"{row.id} {row.project}/{row.name} job {found.id}")
    else:
        response.status_code = 200
    return await shown_job(client, found)


@router.delete("/{schedule_id}", status_code=204, summary="Delete a schedule")
async def delete_schedule(schedule_id: _Id, client: Runner) -> Response:
    """Delete a schedule. The jobs that it has made stay."""
    row = await _schedule(client, schedule_id)
    await client.context.manager.database.write(lambda c: schedules.delete_schedule(c, schedule_id))
    await client.record("schedule.delete", f"{row.id} {row.project}/{row.name}")
    return Response(status_code=204)


async def _schedule(client: Client, number: int) -> Row[Any]:
    """Return a schedule that the client may see. Raises NotFound."""
    row: Row[Any] | None = await client.context.manager.read(lambda c: schedules.find_schedule(c, number))
    if row is None or client.principal.project not in ("", row.project):
        raise NotFound(f"schedule {number} not found")
    return row


def _instants(row: Row[Any]) -> Iterator[float]:
    """Return the next instants of a schedule, few of them."""
    rule = rule_of(row)

    def following() -> Iterator[float]:
        instant: float | None = row.next_at
        while instant is not None:
            yield instant
            instant = rule.next_after(instant)

    return itertools.islice(following(), _PREVIEW)


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
