"""Bodies of requests and responses of the platform's API, as pydantic models; their docstrings are the description.

Fields may be added: to a request with a default. Fixed: names and types of fields, which clients read; times are in
ISO 8601, UTC; fields that a request does not know are refused, because a misspelt limit must not be ignored.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from gossamer.storage.sql.rows import TableRow
from gossamer.storage.sql.storable import unstorable_place
from gossamer_platform.lifecycle import EnvironmentKind, JobState, VersionState
from gossamer_platform.policy import JobPolicy, Seconds
from gossamer_platform.state.defaults import DefaultVersion
from gossamer_platform.state.jobs import Job
from gossamer_platform.state.nodes import Node, NodeState, state_of
from gossamer_platform.state.tables import Project
from gossamer_platform.state.tokens import TokenScope

_Name = Annotated[str, Field(min_length=1, max_length=200)]
_Days = Annotated[float, Field(ge=0, le=36600, allow_inf_nan=False)]
_Jobs = Annotated[int, Field(ge=0, lt=2**31)]


class RequestModel(BaseModel):
    """Base of bodies of requests: fields that it does not know are refused, and text that no database can store."""

    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def check_text(cls, given: Any) -> Any:
        """Return what is given. Raises an error of pydantic's that names the place of such text."""
        place = unstorable_place(given)
        if place is not None:
            raise PydanticCustomError(
                "text", "{place} has a NUL character or half of a character", {"place": place or "the body"}
            )
        return given


class NamedModel(BaseModel):
    """Base of responses. The docstring of a field is its description."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    @classmethod
    def of_row(cls, row: TableRow, **more: Any) -> Self:
        """Return the model of a row: its columns of the same names, and other values."""
        columns = {name: value for name, value in row._asdict().items() if name in cls.model_fields}
        return cls(**{**columns, **_times(columns), **more})


class JobPolicyModel(JobPolicy, RequestModel):
    """Limits of a job, and how often it is tried again, in a request."""


class JobInputModel(RequestModel):
    """A file that the job finds on its node."""

    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 of its content, which was sent to /v1/inputs before."""
    use: _Name = "start_urls"
    """`start_urls`: its lines become the spider's start URLs. Otherwise: name of the argument with the file's path."""


class NewJobModel(JobPolicyModel):
    """A job to create. A limit that is absent or null is the project's."""

    project: _Name
    spider: _Name
    version: _Name | None = None
    """Version to run. Null: the project's default when the job starts."""
    name: _Name | None = None
    """Name of the job, which no other job of the project may have. Null: the server chooses one."""
    arguments: dict[str, str] = {}
    """Arguments of the spider."""
    settings: dict[str, str] = {}
    """Settings of Scrapy that replace those of the project."""
    priority: Annotated[float, Field(allow_inf_nan=False)] = 0.0
    """The pending job with the highest priority starts first, within its project."""
    label: Annotated[str, Field(max_length=100)] | None = None
    """Label that a node must have to run the job. Empty: none. Null: the project's."""
    input: JobInputModel | None = None
    """A file that the job finds on its node. Null: none."""
    is_urgent: bool = False
    """True: the job goes before all others, of all projects. Needs the scope admin for all projects."""
    tags: Annotated[list[_Name], Field(max_length=100)] = []
    """Words by which jobs can be selected."""


class EarlierAttempt(NamedModel):
    """An attempt that failed and was followed by another one."""

    attempt: int
    node: str
    incarnation: str = ""
    """As that of the job."""
    version: str | None = None
    """As that of the job."""
    started_at: datetime | None
    ended_at: datetime
    reason: str


class RunModel(NamedModel):
    """Something that runs a spider."""

    id: int
    name: str
    project: str
    spider: str


class LimitsModel(NamedModel):
    """Limits of a job, or of a project's new jobs."""

    time_limit: float
    memory_limit: int
    file_limit: int
    open_files_limit: int
    pending_limit: float
    min_items: int
    max_errors: int
    good_reasons: list[str] | None


class JobModel(LimitsModel, RunModel):
    """A job: one run of one spider."""

    requested_version: str | None
    """Version that was asked for. Null: the project's default when the job starts."""
    version: str | None
    """Version that the last attempt runs, or ran. Empty: the code on the node's own Python path. Null: none has
    begun."""
    state: JobState
    reason: str
    """Reason of a failure, as `word` or `word: detail`. Empty: the job has not failed."""
    arguments: dict[str, str]
    settings: dict[str, str]
    priority: float
    label: str
    """Label that a node must have to run the job. Empty: none."""
    group_id: int | None
    """Number of the job group that the job belongs to. Null: none."""
    schedule_id: int | None
    """Number of the schedule that made the job, which may be deleted. Null: none did."""
    input: JobInputModel | None
    attempt: int
    """Number of the last attempt. 0: none has begun."""
    earlier_attempts: list[EarlierAttempt]
    retries_left: int
    is_urgent: bool
    """True: it goes before all others, of all projects."""
    after_job: int | None
    """Number of a job that must have ended before this one starts. Null: none."""
    tags: list[str]
    stats: dict[str, Any] | None
    """Scrapy's counters of the last attempt, a few seconds old while it runs. Null: none were reported."""
    node: str
    """Name of the node that has the last attempt."""
    incarnation: str
    """Random name of the node's process that took the last attempt; each start of a node has another one."""
    pid: int | None
    exit_code: int | None
    signal: int | None
    finish_reason: str | None
    waits_for: str | None = None
    """Thing for which a pending job waits, such as a free slot; only when one job is shown. Null: it is not pending."""
    last_log_lines: list[str] | None = None
    """Last lines of the log of a job that has failed; only when one job is shown. Null: see its log."""
    last_error: str | None = None
    """Last line with an error at the end of the log of a job that has ended, and on a second line the exception of its
    traceback; only when one job is shown. Null: none was found."""
    log_deleted: bool
    """True: retention has deleted its log."""
    items_deleted: bool
    """True: retention has deleted its items, if there were any."""
    created_at: datetime
    not_before: datetime | None
    """Time at which the pause before a retry ends."""
    started_at: datetime | None
    ended_at: datetime | None

    @classmethod
    def of(cls, row: Job, tags: list[str]) -> "JobModel":
        """Return the model of a job."""
        earlier = [EarlierAttempt(**{**each, **_times(each)}) for each in row.earlier_attempts]
        own = JobInputModel(digest=row.input_digest, use=row.input_use) if row.input_digest else None
        asked = {"requested_version": row.version_name, "version": row.ran_version}
        return cls.of_row(row, **asked, earlier_attempts=earlier, input=own, tags=tags)


class JobPage(NamedModel):
    """Jobs, the latest first."""

    jobs: list[JobModel]
    next: str | None
    """Value of `after` for the next page. Null: this is the last one."""


class JobCounts(NamedModel):
    """Number of jobs that have not ended."""

    jobs: dict[JobState, int]
    """By state. A state without jobs is left out."""


class KeptModel(BaseModel):
    """Limits of what a project keeps. Null: the manager's default; 0: for ever."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    keep_logs_days: _Days | None = None
    """Days after the end of a job for which its log is kept."""
    keep_logs_jobs: _Jobs | None = None
    """Number of the latest jobs of each spider whose logs are kept."""
    keep_items_days: _Days | None = None
    """Days after the end of a job for which its items are kept."""
    keep_items_jobs: _Jobs | None = None
    """Number of the latest jobs of each spider whose items are kept."""
    keep_jobs_days: _Days | None = None
    """Days after the end of a job for which it is kept. With it, its log and its items are deleted."""
    keep_jobs: _Jobs | None = None
    """Number of the latest jobs of each spider that are kept. With the others, their logs and items are deleted."""


class ProjectModel(LimitsModel, KeptModel, NamedModel):
    """A project, with the limits that its new jobs get."""

    id: int
    """Number, by which pages of the list go on."""
    name: str
    max_running: int | None
    """Jobs of the project that run at a time. Null: as many as there are slots."""
    label: str
    """Label that a node must have to run its jobs, unless a job names another one. Empty: none."""
    retries: int
    retry_seconds: float
    environment: EnvironmentKind
    """Where jobs of new versions run: with the node's own packages, or in a virtual environment of their own."""
    default_version: str | None
    """Version of jobs that name none. Null: no version is ready."""
    is_pinned: bool
    """True: the default stays whatever is deployed. False: the default is the latest version."""
    created_at: datetime

    @classmethod
    def of(cls, row: Project, default: DefaultVersion) -> "ProjectModel":
        """Return the model of a project."""
        return cls.of_row(row, default_version=default.name, is_pinned=default.is_pinned)


class ProjectChange(KeptModel, JobPolicyModel):
    """Changes of a project. A field that is absent stays as it is."""

    max_running: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Jobs of the project that run at a time. 0: none start. Null: as many as there are slots."""
    environment: EnvironmentKind | None = None
    """Where jobs of new versions run."""
    label: Annotated[str, Field(max_length=100)] | None = None
    """Label that a node must have to run its new jobs, unless a job names another one. Empty: none."""


class VersionModel(NamedModel):
    """A deployed artefact of a project."""

    id: int
    project: str
    name: str
    state: VersionState
    reason: str
    """Reason why the version is broken, or why it is not built yet. Empty: there is none."""
    digest: str
    """SHA-256 of the artefact. Empty: the project's code is on the node's own Python path."""
    environment: EnvironmentKind
    """Where its jobs run: with the node's own packages, or in a virtual environment of their own."""
    spiders: list[str] | None
    """Names of its spiders. Null: not listed yet."""
    warnings: list[str] | None
    """Warnings of the listing of spiders: a module that cannot be imported, a name that two spiders have."""
    deployed_at: datetime
    deployed_by: str | None = None
    """Owner of the token, or name of the user, that deployed it; only in the list of versions. Null: the audit does not
    have that any more."""


class EnvironmentModel(NamedModel):
    """Isolated environment of a version on a node."""

    version: str
    version_id: int
    node: str
    """Name of the node."""
    digest: str
    """Digest of requirements, Python, platform and indexes. Versions with the same one share the environment."""
    status: str
    """`building`, `ready` or `failed`."""
    reason: str
    """Reason why it failed. Empty: it has not."""
    requirements: list[str]
    """Lines of the requirements file that it was built from."""
    built: str
    """Versions of Python and Scrapy, and the builder."""
    changed_at: datetime


class NodeModel(NamedModel):
    """A node: a program on some machine that runs jobs."""

    id: int
    """Number, by which pages of the list go on."""
    name: str
    state: NodeState
    """online; draining: it gets no more jobs; lost: it was silent for so long that its jobs were taken from it;
    offline: it was stopped while it had no jobs."""
    slots: int
    """Jobs that it runs at a time."""
    running: int
    """Jobs that it has."""
    labels: list[str]
    address: str
    """Name of its machine."""
    release: str
    """Releases of Gossamer and Python that it runs."""
    silent_seconds: float
    """Seconds since its last heartbeat."""
    limit_seconds: float
    """Silence after which it kills its jobs itself. 0: it runs in the process of this server and is never lost."""
    registered_at: datetime
    """Time of its last start."""
    lost_at: datetime | None

    @classmethod
    def of(cls, row: Node) -> "NodeModel":
        """Return the model of a node."""
        return cls.of_row(row, state=state_of(row))


class NodeCounts(BaseModel):
    """Number of nodes."""

    nodes: dict[NodeState, int]
    """By state. A state without nodes is left out."""
    slots: int
    """Jobs that the nodes which are online run at a time."""


class NodeChange(RequestModel):
    """Change of a node."""

    draining: bool
    """True: the node gets no more jobs."""


class LabelChange(RequestModel):
    """Limit of a label."""

    max_running: Annotated[int, Field(ge=0, lt=2**31)] | None
    """Jobs with this label that run at a time. 0: none start. Null: no limit."""


class LabelModel(LabelChange, NamedModel):
    """A label with a limit."""

    name: str


class NewTokenModel(RequestModel):
    """A token to make."""

    name: _Name
    """Name of its owner, which the audit shows."""
    scope: TokenScope = TokenScope.READ
    """Permission; each includes those before it: read, run, deploy, admin. The scope node is for `gossamer node`, and
    permits nothing else."""
    project: Annotated[str, Field(max_length=200)] = ""
    """The only project it is for. Empty: all."""
    valid_seconds: Annotated[Seconds, Field(gt=0)] | None = None
    """Seconds from now for which it is valid. Null: until it is revoked."""


class TokenModel(NamedModel):
    """A token, without its secret."""

    id: int
    name: str
    scope: TokenScope
    project: str
    node: str
    """The only node that may use a token with the scope node: the first one that did. Empty: none has."""
    created_at: datetime
    expires_at: datetime | None


class NewTokenResponse(NamedModel):
    """A token that was made."""

    id: int
    token: str
    """The secret, which is shown this once and stored nowhere."""


class AuditEntry(NamedModel):
    """Something that a principal changed."""

    id: int
    at: datetime
    actor: str
    origin: str
    """Address of the client. Empty: an earlier version made the change, or it came over a Unix socket."""
    action: str
    subject: str
    outcome: str
    """`done`, `refused`, `failed`, or `begun`: there was no answer yet, or the server was killed, and the change may
    have been made."""
    status: int | None
    """Status code of the answer. Null: `begun`."""
    reason: str
    """Reason of a refusal."""


class ItemPage(NamedModel):
    """Items of a job, in the order in which they were scraped."""

    items: list[Any]
    next: str | None
    """Value of `after` for the next page. Null: there are no more items now; a running job may add some."""
    end: str
    """Value of `after` that continues behind this page when the job has added items."""


def _times(columns: Mapping[str, Any]) -> dict[str, datetime | None]:
    """Return the columns that are times."""
    names = (name for name in columns if name.endswith("_at") or name == "not_before")
    return {name: None if columns[name] is None else datetime.fromtimestamp(columns[name], UTC) for name in names}
