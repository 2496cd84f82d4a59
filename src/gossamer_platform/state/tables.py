"""Tables of the platform's state, each as the class of its rows.

The statements of this package run on SQLite and on PostgreSQL. Times are seconds since 1970 by the database's clock;
ids are integers that only grow. A change of a table needs a migration in `migrations/versions`; a test compares them.
Fixed: names of tables, columns and constraints that a migration has created.
"""

from functools import partial
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    UniqueConstraint,
    false,
    text,
)

from gossamer.storage.sql.audit import AuditEntryRow
from gossamer.storage.sql.rows import NAMES, ROW_ID, TableRow, column
from gossamer.storage.sql.rows import table as table_of
from gossamer.storage.sql.text import String, Text

METADATA: Final = MetaData(naming_convention=NAMES)

table: Final = partial(table_of, METADATA)
_JSON_OR_NULL: Final = JSON(none_as_null=True)


class LimitColumns(TableRow):
    """Limits that a job has, or a project's new jobs get; see JobPolicy."""

    retry_seconds: float = column(Double, server_default="30")  # of a job: pause before the next retry
    time_limit: float = column(Double, server_default="0")
    memory_limit: int = column(BigInteger, server_default="0")
    file_limit: int = column(BigInteger, server_default="0")
    open_files_limit: int = column(Integer, server_default="0")
    pending_limit: float = column(Double, server_default="0")
    min_items: int = column(Integer, server_default="0")
    max_errors: int = column(Integer, server_default="0")
    good_reasons: list[str] | None = column(_JSON_OR_NULL)


class Project(LimitColumns):
    """A project, and what its jobs and versions get whose clients name nothing else."""

    id: int = column(ROW_ID, primary_key=True)
    name: str = column(String(200))
    created_at: float = column(Double)
    # Number of the project's last turn: of the projects that wait, the one with the lowest number starts a job next.
    turn: int = column(BigInteger, server_default="0")
    max_running: int | None = column(Integer)  # jobs that run at a time; null: as many as there are slots
    label: str = column(String(100), server_default="")  # of its jobs that name none; see job.label
    retries: int = column(Integer, server_default="0")
    environment: str = column(String(16), server_default="shared")  # of new versions; see EnvironmentKind
    pinned_version: str | None = column(Text)  # name of the version that is the default; null: the latest
    # Retention; null: the manager's default; 0: kept for ever. See RetentionPolicy.
    keep_logs_days: float | None = column(Double)
    keep_logs_jobs: int | None = column(Integer)
    keep_items_days: float | None = column(Double)
    keep_items_jobs: int | None = column(Integer)
    keep_jobs_days: float | None = column(Double)
    keep_jobs: int | None = column(Integer)


projects = table("project", Project, UniqueConstraint("name"))


class VersionRow(TableRow):
    """A version of a project."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    name: str = column(Text)  # as it was given; empty: the code is on the node's own Python path
    state: str = column(String(16))
    reason: str = column(Text, server_default="")  # why it is broken
    digest: str = column(String(64))  # SHA-256 of the artefact; empty: there is none
    file: str = column(Text, server_default="")  # the artefact's file, below the folder of artefacts
    settings_module: str = column(Text, server_default="")
    spiders: list[str] | None = column(_JSON_OR_NULL)  # their names; null: not listed yet
    # `wanted`: a node is to list the spiders; else the incarnation of the node that does so; empty: nothing to do
    listing: str = column(String(64), server_default="")
    deployed_at: float = column(Double)
    environment: str = column(String(16), server_default="shared")
    requirements: str = column(Text, server_default="")  # given at the deployment, beside the artefact's
    warnings: list[str] | None = column(_JSON_OR_NULL)  # texts: what the listing of the spiders warned of
    listing_after: float | None = column(Double)  # a wanted listing is taken from this time on; null: at once


versions = table("version", VersionRow, Index(None, "project_id", "state"), Index(None, "listing"))


class JobRow(LimitColumns):
    """A job, with its last attempt."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    spider: str = column(Text)
    name: str = column(Text)  # Scrapyd's job id, chosen by the client; not unique
    # what a client sent in Idempotency-Key when it created the job; null: nothing
    request_key: str | None = column(String(200))
    schedule_id: int | None = column(BigInteger)  # the schedule that made the job, which may be gone; null: none did
    group_id: int | None = column(BigInteger)  # the job group that it belongs to; null: none
    shares_frontier: bool = column(Boolean, server_default=false())  # True: with the others of its group
    input_digest: str = column(String(64), server_default="")  # SHA-256 of its input; empty: it has none
    input_name: str = column(String(200), server_default="")  # name of that file
    input_use: str = column(String(200), server_default="")  # start_urls, or the argument with its path
    file_name: str = column(Text)  # of its log and items, without suffix; unique within the spider
    version_name: str | None = column(Text)  # the version that was asked for; null: the default when the job starts
    version_id: int | None = column(ForeignKey(versions.c.id))  # the version of the last attempt; null: there was none
    ran_version: str | None = column(Text)  # its name; empty: the code is on the node's own Python path; null: as above
    arguments: dict[str, str] = column(JSON)
    settings: dict[str, str] = column(JSON)
    label: str = column(String(100), server_default="")  # only nodes with this label run it; empty: all do
    priority: float = column(Double)
    retries_left: int = column(Integer, server_default="0")
    is_urgent: bool = column(Boolean, server_default=false())  # goes before all others of all projects
    after_job: int | None = column(BigInteger)  # it does not start before this job has ended; null: it waits for none
    stats: dict[str, Any] | None = column(_JSON_OR_NULL)  # Scrapy's counters of the last attempt
    state: str = column(String(16))
    reason: str = column(Text, server_default="")  # why it failed
    attempt: int = column(Integer, server_default="0")  # number of the last attempt
    # attempts that were followed by a retry: objects with attempt, node, incarnation, version, started_at, ended_at,
    # reason
    earlier_attempts: list[dict[str, Any]] = column(JSON)
    not_before: float | None = column(Double)  # a pending job is taken from this time on; null: at once
    node: str = column(String(64), server_default="")  # name of the node that has the last attempt
    incarnation: str = column(String(64), server_default="")  # of that node when it took the attempt
    pid: int | None = column(Integer)
    exit_code: int | None = column(Integer)
    signal: int | None = column(Integer)
    finish_reason: str | None = column(Text)
    stops: int = column(Integer, server_default="0")  # how often a stop was asked for
    stop_signal: int | None = column(Integer)  # signal of the last stop
    spider_job: int = column(BigInteger, server_default="0")  # number among the jobs of its spider, from 1
    notes: dict[str, Any] | None = column(_JSON_OR_NULL)  # values by name that clients attach to the job
    has_files: bool = column(Boolean, server_default=false())  # True: its log or its items may exist
    log_deleted: bool = column(Boolean, server_default=false())
    items_deleted: bool = column(Boolean, server_default=false())
    created_at: float = column(Double)
    started_at: float | None = column(Double)
    ended_at: float | None = column(Double)


jobs = table(
    "job",
    JobRow,
    UniqueConstraint("project_id", "spider", "file_name"),
    UniqueConstraint("project_id", "request_key"),
    # Not partial indexes: neither database uses those for a state that is a parameter of the statement.
    Index("ix_job_queue", "state", "project_id", text("priority DESC"), "id"),
    Index(None, "state", "node"),
    Index(None, "project_id", "spider", "ended_at"),
    Index(None, "project_id", "spider", "spider_job"),
    Index(None, "ended_at", "id"),
    Index(None, "state", "label"),
    Index(None, "version_id"),
    Index(None, "schedule_id", "state"),
    Index(None, "group_id", "state"),
    Index(None, "project_id", "input_digest"),
    Index(None, "name"),
    Index(None, "state", "is_urgent"),
)


class NumberedSpider(TableRow):
    """A spider that has a number."""

    project_id: int = column(ForeignKey(projects.c.id, ondelete="CASCADE"), primary_key=True)
    number: int = column(Integer, primary_key=True, autoincrement=False)  # within the project, from 1
    name: str = column(Text)
    last_job: int = column(BigInteger, server_default="0")  # number that its last job got


spiders = table("spider", NumberedSpider, UniqueConstraint("project_id", "name"))


class JobTag(TableRow):
    """A tag of a job."""

    job_id: int = column(ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True)
    name: str = column(String(200), primary_key=True)


job_tags = table("job_tag", JobTag, Index(None, "name"))


class EnvironmentRow(TableRow):
    """The isolated environment of a version on a node."""

    version_id: int = column(ForeignKey(versions.c.id), primary_key=True)
    node: str = column(String(64), primary_key=True)  # name of the node that has it
    digest: str = column(String(64))  # of requirements, Python, platform and indexes
    status: str = column(String(16))  # building, ready, failed
    reason: str = column(Text, server_default="")  # why it failed
    requirements: list[str] = column(JSON)  # lines of a requirements file
    built: str = column(Text, server_default="")  # versions of Python and Scrapy, and the builder
    log: str = column(Text, server_default="")  # end of what the builder printed
    changed_at: float = column(Double)


environments = table("environment", EnvironmentRow)


class NodeRow(TableRow):
    """A node."""

    id: int = column(ROW_ID, primary_key=True)
    name: str = column(String(64))
    folder: str = column(String(64))  # random name of the node's folder: tells two machines apart
    incarnation: str = column(String(64))  # random name of the process, new at each start
    address: str = column(String(200), server_default="")  # name of its machine, for people
    release: str = column(String(100), server_default="")  # release of Gossamer and of Python
    slots: int = column(Integer)
    labels: list[str] = column(JSON)
    is_draining: bool = column(Boolean, server_default=false())  # True: it is given no more jobs
    beats: int = column(BigInteger, server_default="0")  # number of its calls that show that it lives
    # seconds of silence after which the node itself kills its jobs; a manager waits longer (`lost_after`)
    limit_seconds: float = column(Double)
    registered_at: float = column(Double)
    beat_at: float = column(Double)  # for people; nothing is decided by it
    lost_at: float | None = column(Double)  # when its jobs were taken from it; null: it is not lost


nodes = table("node", NodeRow, UniqueConstraint("name"))


class Label(TableRow):
    """A label with a limit."""

    name: str = column(String(100), primary_key=True)
    max_running: int = column(Integer)  # jobs with this label that run at a time, on all nodes


labels = table("label", Label)


class GroupRow(TableRow):
    """A job group."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    name: str = column(Text)  # the names of its jobs begin with it
    kind: str = column(String(16))  # split: each job has a part of a file; processes: one frontier
    spider: str = column(Text)
    request_key: str | None = column(String(200))  # as that of a job
    created_at: float = column(Double)


job_groups = table("job_group", GroupRow, UniqueConstraint("project_id", "request_key"))


class StoredInput(TableRow):
    """An input of jobs."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    digest: str = column(String(64))  # SHA-256 of the content
    name: str = column(String(200))
    length: int = column(BigInteger)
    created_at: float = column(Double)


inputs = table("job_input", StoredInput, UniqueConstraint("project_id", "digest"))


class InputPart(TableRow):
    """A part of an input."""

    input_id: int = column(ForeignKey(inputs.c.id), primary_key=True)
    start_at: int = column(BigInteger, primary_key=True)  # offset of the part
    content: bytes = column(LargeBinary)


input_parts = table("job_input_part", InputPart)


class SpiderPolicy(TableRow):
    """A policy of a spider."""

    project_id: int = column(ForeignKey(projects.c.id), primary_key=True)
    spider: str = column(Text, primary_key=True)
    max_running: int | None = column(Integer)  # jobs of the spider that run at a time; null: as many as the project's
    retries: int | None = column(Integer)


# Null in a column of a limit: what the project says.
_limits = [Column(name, each.type) for name, each in vars(LimitColumns).items() if isinstance(each, Column)]
spider_policies = table("spider_policy", SpiderPolicy, *_limits)


class Import(TableRow):
    """An import from another program's database."""

    source: str = column(String(200), primary_key=True)  # what was taken over from another program's database


imports = table("import", Import)


class WebhookRow(TableRow):
    """A webhook."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int | None = column(ForeignKey(projects.c.id))  # null: events of all projects, and of nodes
    url: str = column(Text)
    events: list[str] = column(JSON)  # kinds of events; see EventKind
    secret_name: str = column(String(64))  # under which the secret is encrypted; see manager/vault.py
    secret: str = column(Text)  # its token
    slow_factor: float = column(Double)  # a job that takes so many times as long as usual is slow
    paused: bool = column(Boolean, server_default=false())
    dropped: int = column(BigInteger, server_default="0")  # events that were too many to keep
    created_at: float = column(Double)


webhooks = table("webhook", WebhookRow, Index(None, "project_id"))


class Delivery(TableRow):
    """The delivery of an event to a webhook."""

    id: int = column(ROW_ID, primary_key=True)
    webhook_id: int = column(ForeignKey(webhooks.c.id))
    event_id: str = column(String(64))  # the same for all webhooks that get the event
    event: str = column(String(40))  # its kind
    body: dict[str, Any] = column(JSON)
    state: str = column(String(16))  # waiting, sent, dead
    attempts: int = column(Integer, server_default="0")
    next_at: float = column(Double)  # a waiting one is sent from this time on
    lease: str = column(String(64), server_default="")  # of the manager that sends it
    leased_until: float = column(Double, server_default="0")
    status: int | None = column(Integer)  # of the last answer; null: there was none
    error: str = column(Text, server_default="")  # why the last attempt failed
    created_at: float = column(Double)
    ended_at: float | None = column(Double)


deliveries = table(
    "webhook_delivery",
    Delivery,
    UniqueConstraint("webhook_id", "event_id"),
    Index(None, "state", "next_at"),
    Index(None, "webhook_id", "state"),
)


class Variable(TableRow):
    """An environment variable of a project's jobs."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    name: str = column(String(200))
    value: str = column(Text)  # of a secret: its token, see manager/vault.py
    is_secret: bool = column(Boolean)
    changed_at: float = column(Double)


variables = table("variable", Variable, UniqueConstraint("project_id", "name"))


class Token(TableRow):
    """A token of clients, without its secret."""

    id: int = column(ROW_ID, primary_key=True)
    name: str = column(String(200))  # whose it is; shown in the audit
    digest: str = column(String(64))  # SHA-256 of the secret
    scope: str = column(String(16))
    project: str = column(String(200), server_default="")  # the only project it is for; empty: all
    node: str = column(String(64), server_default="")  # the only node that it is for; empty: any
    created_at: float = column(Double)
    expires_at: float | None = column(Double)  # null: never


tokens = table("token", Token, UniqueConstraint("digest"))


class BrowserSession(TableRow):
    """A session of a browser that has logged in to the dashboard."""

    id: int = column(ROW_ID, primary_key=True)
    digest: str = column(String(64))  # SHA-256 of the cookie's secret
    token_id: int = column(BigInteger)  # the token that was entered; 0: the server's name and password
    proof: str = column(String(64), server_default="")  # HMAC of name and password, by the secret; empty: of a token
    expires_at: float = column(Double)


browser_sessions = table("browser_session", BrowserSession, UniqueConstraint("digest"), Index(None, "expires_at"))


class AuditRow(AuditEntryRow):
    """An entry of the audit."""


audit = table("audit", AuditRow)


class StoredFile(TableRow):
    """A log, or the items, of an attempt in the storage."""

    id: int = column(ROW_ID, primary_key=True)
    job_id: int = column(BigInteger)
    attempt: int = column(Integer)
    kind: str = column(String(8))  # log, items
    length: int = column(BigInteger, server_default="0")  # bytes of its chunks together
    lines: int = column(BigInteger, server_default="0")  # ends of lines in them
    received: int = column(BigInteger, server_default="0")  # end of what was received of the node's file
    missing: int = column(BigInteger, server_default="0")  # bytes of the node's file that are lost
    added: int = column(Integer, server_default="0")  # chunks since some were last merged
    lease: str = column(String(64), server_default="")  # of the merge or deletion that is under way
    leased_until: float = column(Double, server_default="0")
    sweep_at: float | None = column(Double)  # time from which objects that no chunk names are deleted
    read_until: float = column(Double, server_default="0")  # a reader was at work that may go on until then
    deleted_at: float | None = column(Double)  # since when clients do not see it; null: they do
    changed_at: float = column(Double)


job_files = table(
    "job_file",
    StoredFile,
    UniqueConstraint("job_id", "attempt", "kind"),
    Index(None, "added"),
    Index(None, "sweep_at"),
    Index(None, "deleted_at"),
)


class Chunk(TableRow):
    """A chunk of a file."""

    id: int = column(ROW_ID, primary_key=True)
    file_id: int = column(ForeignKey(job_files.c.id))
    offset: int = column(BigInteger)
    length: int = column(BigInteger)
    lines_before: int = column(BigInteger)  # ends of lines in the chunks before it
    lines: int = column(Integer)  # ends of lines in it
    line_index: list[list[int]] = column(JSON)  # see line_index.py
    object: str = column(Text)  # name of its object in the storage


chunks = table("chunk", Chunk, UniqueConstraint("file_id", "offset"), Index(None, "file_id", "lines_before"))


class StorageRow(TableRow):
    """The storage of the platform."""

    id: int = column(Integer, primary_key=True)  # 1: there is at most one row
    identity: str = column(String(64))  # what the storage's marker says
    is_marked: bool = column(Boolean, server_default=false())  # True: it has had the marker


storage = table("storage", StorageRow)


class ScheduleRow(TableRow):
    """A schedule."""

    id: int = column(ROW_ID, primary_key=True)
    project_id: int = column(ForeignKey(projects.c.id))
    name: str = column(String(100))
    kind: str = column(String(8))  # cron, every, once; see schedules/timing.py
    rule: str = column(Text)
    time_zone: str = column(String(100))
    start_at: float = column(Double)
    end_at: float | None = column(Double)
    jitter: float = column(Double)
    missed: str = column(String(8))  # skip, once: what happens after instants that were missed
    if_running: str = column(String(8))  # run, skip: what happens if the job before has not ended
    paused: bool = column(Boolean, server_default=false())
    crawl: list[dict[str, Any]] | None = column(_JSON_OR_NULL)  # that it submits in place of a job; null: none
    # The job that is made
    spider: str = column(Text)  # empty: none is
    version_name: str | None = column(Text)
    arguments: dict[str, str] = column(JSON)
    settings: dict[str, str] = column(JSON)
    priority: float = column(Double)
    policy: dict[str, Any] = column(JSON)
    next_at: float | None = column(Double)  # the next instant of the rule; null: there is none
    due_at: float | None = column(Double)  # that instant with its jitter
    last_at: float | None = column(Double)  # the last instant that has come
    last_result: str = column(Text, server_default="")  # what was done then
    created_at: float = column(Double)
    ended_at: float | None = column(Double)  # since when there is no next instant


schedules = table("schedule", ScheduleRow, UniqueConstraint("project_id", "name"), Index(None, "due_at"))


class CrawlFiring(TableRow):
    """A firing of a schedule that submits crawl requests."""

    id: int = column(ROW_ID, primary_key=True)
    schedule_id: int = column(ForeignKey(schedules.c.id))
    instant: float = column(Double)  # of the schedule's rule; of one that was asked for: when that was
    key: str = column(String(64))  # Idempotency-Key; follows from the schedule and the instant
    state: str = column(String(16))  # waiting, submitted, failed
    requests: list[dict[str, Any]] = column(JSON)  # crawl requests to submit; empty once it has ended
    crawls: list[list[str]] = column(JSON)  # application and crawl of each, as pairs
    attempts: int = column(Integer, server_default="0")
    next_at: float = column(Double)  # a waiting one is submitted from this time on
    lease: str = column(String(64), server_default="")  # of the manager that submits it
    leased_until: float = column(Double, server_default="0")
    status: int | None = column(Integer)  # of the service's last answer; null: there was none
    result: str = column(Text, server_default="")  # what the service did, or why the last attempt failed
    created_at: float = column(Double)
    ended_at: float | None = column(Double)


crawl_firings = table(
    "crawl_firing",
    CrawlFiring,
    UniqueConstraint("key"),
    Index(None, "state", "next_at"),
    Index(None, "schedule_id", "id"),
    Index(None, "ended_at"),
)
