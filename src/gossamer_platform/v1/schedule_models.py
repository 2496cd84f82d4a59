"""Bodies of requests and responses about schedules, and the check of the crawl requests that a schedule submits.

Fixed: names and types of fields, which clients read. Fields may be added: to a request with a default.
"""

import contextlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import AwareDatetime, Field

from gossamer.errors import BadInput, RequestRejected
from gossamer.model.messages.reader import MessageReader
from gossamer.model.messages.secret_fields import redacted_request
from gossamer_platform.delivery.crawls import CrawlService
from gossamer_platform.schedules.firing import rule_of
from gossamer_platform.schedules.timing import RuleKind, ScheduleRule, checked_rule
from gossamer_platform.state.schedules import Schedule
from gossamer_platform.state.tables import CrawlFiring
from gossamer_platform.v1.models import JobPolicyModel, NamedModel, RequestModel

_PREVIEW: Final = 5
"""Number of coming times that a response shows."""
MAX_REQUESTS: Final = 1000
"""Maximum number of crawl requests of a schedule. Must not exceed 10,000, which the crawl service takes at a time."""
_MAX_REQUEST_BYTES: Final = 256 * 1024
"""Maximum size of these requests together. Must not exceed the service's limit of a request body."""
_Name = Annotated[str, Field(min_length=1, max_length=100)]


class ScheduleTimes(RequestModel):
    """When a schedule fires: exactly one of cron, every and at."""

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


class NewScheduleModel(ScheduleTimes, JobPolicyModel):
    """A schedule to create: exactly one of cron, every and at; and the job to make, or the crawl requests to submit."""

    project: _Name
    spider: _Name | None = None
    """Spider of the jobs. Null: the schedule has `crawl`."""
    crawl: list[dict[str, Any]] | dict[str, Any] | None = None
    """One crawl request, or several, that are submitted to the crawl service in place of a job. Absent fields: `appid`
    is the project, `crawlid` the name of the schedule, and `fresh` true, so that pages are fetched again each time.
    `attrs` of each record name the schedule. Null: the schedule makes jobs."""
    name: _Name
    """Name of the schedule, which no other one of the project has."""
    jitter: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = 0.0
    """Seconds by which a job is postponed at most, to spread those of many schedules; never beyond the schedule's next
    time. Always the same for one time."""
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

    def columns(self, rule: ScheduleRule) -> dict[str, Any]:
        """Return the columns of the schedule, with this rule. Raises BadInput unless it has either a job or requests
        that the crawl service takes."""
        fields = ("arguments", "settings", "priority", "jitter", "missed", "if_running")
        columns: dict[str, Any] = {name: getattr(self, name) for name in fields}
        columns |= {"kind": rule.kind.value, "rule": rule.text, "time_zone": rule.zone, "start_at": rule.start}
        columns |= {"end_at": rule.end, "version_name": self.version, "policy": self.given()}
        return columns | {"spider": self.spider or "", "crawl": self._requests()}

    def _requests(self) -> list[dict[str, Any]] | None:
        """Return the crawl requests. None: the schedule makes jobs. Raises BadInput."""
        if (self.crawl is None) == (self.spider is None):
            raise BadInput("give exactly one of spider, for jobs, and crawl, for crawl requests")
        if self.crawl is None:
            return None
        of_jobs = {name: getattr(self, name) for name in ("version", "arguments", "settings", "priority")}
        of_jobs |= self.given() | ({"if_running": True} if self.if_running != "run" else {})
        if given := [name for name, value in of_jobs.items() if value]:
            raise BadInput(f"{', '.join(given)}: for schedules of jobs only; a crawl that runs is joined")
        given_requests = self.crawl if isinstance(self.crawl, list) else [self.crawl]
        return checked_requests(given_requests, project=self.project, schedule=self.name)


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
    crawl: list[dict[str, Any]] | dict[str, Any] | None = None
    """All crawl requests, of a schedule that submits some; those of before are replaced."""
    version: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Version to run. Null: the project's latest when a job starts."""
    arguments: dict[str, str] | None = None
    """All arguments; those of before are replaced."""
    settings: dict[str, str] | None = None
    priority: Annotated[float, Field(allow_inf_nan=False)] | None = None

    def applied_to(self, row: Schedule) -> NewScheduleModel:
        """Return the schedule as it would be created with these changes. Raises BadInput."""
        known = {name: value for name, value in row._asdict().items() if name in NewScheduleModel.model_fields}
        known |= {"version": row.version_name, "start": _time(row.start_at), "end": _time(row.end_at), **row.policy}
        known["spider"] = row.spider or None
        changes = self.model_dump(exclude_unset=True, exclude={"paused"})
        if not {"cron", "every", "at"} & set(changes):
            at, kind = _time(row.start_at), RuleKind(row.kind)
            known |= {"at": at} if kind is RuleKind.ONCE else {str(kind): row.rule}
        may_be_null = {"version", "end", "start"}
        changes = {name: value for name, value in changes.items() if value is not None or name in may_be_null}
        return NewScheduleModel(**{**known, **changes})


class ScheduleModel(NamedModel):
    """A schedule."""

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
    spider: str | None
    """Spider of the jobs. Null: the schedule submits crawl requests."""
    crawl: list[dict[str, Any]] | None
    """Crawl requests that are submitted. Null: the schedule makes jobs. For clients without the scope `run`, `cookie`,
    `proxy` and the values of secret headers are `<redacted>`."""
    version: str | None
    arguments: dict[str, str]
    settings: dict[str, str]
    priority: float
    next: list[datetime]
    """The next times, without their jitter. Empty: it has ended or is paused."""
    last: datetime | None
    """The last time that has come."""
    last_result: str
    """Result of that time: `job ID`, `missed`, `skipped: …`, `crawl APPID/CRAWLID: …`, or `failed: …`."""

    @classmethod
    def of(cls, row: Schedule, *, with_secrets: bool) -> "ScheduleModel":
        """Return the model of a schedule. `with_secrets`: the client may read those of its crawl requests."""
        times = {"start": _time(row.start_at), "end": _time(row.end_at), "last": _time(row.last_at)}
        following: list[datetime] = []
        with contextlib.suppress(OSError, ValueError, KeyError):  # its time zone was removed from this machine
            following = (
                [] if row.paused else [datetime.fromtimestamp(at, UTC) for at in _coming(rule_of(row), row.next_at)]
            )
        crawl = row.crawl if with_secrets or row.crawl is None else list(map(redacted_request, row.crawl))
        return cls.of_row(
            row, **times, spider=row.spider or None, version=row.version_name, next=following, crawl=crawl
        )


class ComingTimes(NamedModel):
    """Times that are to come."""

    next: list[datetime]
    """The next times, without their jitter. Empty: there are none."""

    @classmethod
    def of(cls, rule: ScheduleRule, *, after: float) -> "ComingTimes":
        """Return the next times of a rule."""
        return cls(next=[datetime.fromtimestamp(at, UTC) for at in _coming(rule, rule.next_after(after))])


class FiredCrawl(NamedModel):
    """A crawl for which a schedule has submitted requests."""

    appid: str
    crawlid: str
    url: str | None
    """Address of the crawl at the crawl service. Null: this server knows no crawl service."""


class CrawlFiringModel(NamedModel):
    """One time at which a schedule submits its crawl requests."""

    id: int
    schedule_id: int
    time: datetime
    """The time of the schedule's rule; of one that was asked for, when that was."""
    state: Literal["waiting", "submitted", "failed"]
    result: str
    """The service's work, or the reason why the last attempt failed."""
    status: int | None
    """Status of the service's last answer. Null: there was none."""
    attempts: int
    next_attempt: datetime | None
    """Time of the next attempt. Null: it has ended."""
    crawls: list[FiredCrawl]
    """The crawls of the requests, up to a hundred."""
    created_at: datetime
    ended_at: datetime | None

    @classmethod
    def of(cls, row: CrawlFiring, service: CrawlService) -> "CrawlFiringModel":
        """Return the model of a firing."""
        next_attempt = _time(row.next_at) if row.state == "waiting" else None
        crawls = [
            FiredCrawl(appid=appid, crawlid=crawlid, url=service.address_of(appid, crawlid))
            for appid, crawlid in row.crawls
        ]
        return cls.of_row(row, time=_time(row.instant), next_attempt=next_attempt, crawls=crawls)


class CrawlFiringPage(NamedModel):
    """Times of a schedule that submits crawl requests, the latest first."""

    firings: list[CrawlFiringModel]
    next: str | None
    """Value of `after` for the next page. Null: this is the last one."""


def checked_requests(given: Sequence[Mapping[str, Any]], *, project: str, schedule: str) -> list[dict[str, Any]]:
    """Return crawl requests with all that they need. Raises BadInput with the first fault."""
    if not 0 < len(given) <= MAX_REQUESTS:
        raise BadInput(f"crawl: {len(given)} requests; a schedule submits 1 to {MAX_REQUESTS}")
    found: list[dict[str, Any]] = []
    for number, request in enumerate(given):
        full = {"appid": project, "crawlid": schedule, "fresh": True, **request}
        if isinstance(attrs := full.get("attrs") or {}, dict):
            full["attrs"] = {"schedule": f"{project}/{schedule}", **attrs}
        place = f"crawl[{number}]" if len(given) > 1 else "crawl"
        try:
            kind, _ = _reader().read(full)
        except RequestRejected as fault:
            raise BadInput(f"{place}{fault.field and '.'}{fault.field}: {fault.reason}") from None
        if kind != "crawl":
            raise BadInput(f"{place}: this is a request of the kind {kind}, not crawl")
        found.append(full)
    if len(json.dumps(found)) > _MAX_REQUEST_BYTES:
        raise BadInput(f"crawl: the requests have more than {_MAX_REQUEST_BYTES // 1024} KiB together")
    return found


@cache
def _reader() -> MessageReader:
    return MessageReader()


def _coming(rule: ScheduleRule, first: float | None) -> Iterator[float]:
    """Return up to _PREVIEW times of a rule, in seconds since 1970, from its time `first` on. None: there are none."""

    def following() -> Iterator[float]:
        instant = first
        while instant is not None:
            yield instant
            instant = rule.next_after(instant)

    return itertools.islice(following(), _PREVIEW)


def _time(at: float | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at, UTC)
