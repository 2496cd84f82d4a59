"""Tables of the platform's state, and the database's own clock. `schedule_tables.py` has the tables of schedules.

The statements of this package run on SQLite and on PostgreSQL. Times are seconds since 1970 by the database's clock;
ids are integers that only grow. A change of a table needs a migration in `migrations/versions`; a test compares them.
Fixed: names of tables, columns and constraints that a migration has created.
"""

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
    Table,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from gossamer_platform.state.text import String, Text

METADATA: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)
"""Every constraint has a name from the first migration on, because a later one can change only what has a name."""

ROW_ID: Final = BigInteger().with_variant(Integer(), "sqlite")
"""SQLite gives a row its number only if the column's type is INTEGER."""


class DatabaseNow(FunctionElement[float]):
    """Time of the database in seconds since 1970. In PostgreSQL it goes on within a transaction."""

    type = Double()
    inherit_cache = True


@compiles(DatabaseNow, "sqlite")
def _now_in_sqlite(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"  # 2440587.5: the Julian day of 1970-01-01


@compiles(DatabaseNow, "postgresql")
def _now_in_postgresql(element: DatabaseNow, compiler: Any, **_: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


projects = Table(
    "project",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("name", String(200), nullable=False),
    Column("created_at", Double, nullable=False),
    # Number of the project's last turn: of the projects that wait, the one with the lowest number starts a job next.
    Column("turn", BigInteger, nullable=False, server_default="0"),
    Column("max_running", Integer),  # jobs of the project that run at a time; null: as many as there are slots
    Column("label", String(100), nullable=False, server_default=""),  # of its jobs that name none; see job.label
    # What a job gets whose client names nothing else; see JobPolicy.
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("retry_seconds", Double, nullable=False, server_default="30"),
    Column("time_limit", Double, nullable=False, server_default="0"),
    Column("memory_limit", BigInteger, nullable=False, server_default="0"),
    Column("file_limit", BigInteger, nullable=False, server_default="0"),
    Column("open_files_limit", Integer, nullable=False, server_default="0"),
    Column("pending_limit", Double, nullable=False, server_default="0"),  # seconds; 0: none
    Column("min_items", Integer, nullable=False, server_default="0"),
    Column("max_errors", Integer, nullable=False, server_default="0"),  # 0: any number
    Column("good_reasons", JSON(none_as_null=True)),  # finish_reasons of a success; null: the usual ones
    Column("environment", String(16), nullable=False, server_default="shared"),  # of new versions; see EnvironmentKind
    Column("pinned_version", Text),  # name of the version that is the default; null: the latest
    # Retention; null: the manager's default; 0: kept for ever. See RetentionPolicy.
    Column("keep_logs_days", Double),
    Column("keep_logs_jobs", Integer),
    Column("keep_items_days", Double),
    Column("keep_items_jobs", Integer),
    Column("keep_jobs_days", Double),
    Column("keep_jobs", Integer),
    UniqueConstraint("name"),
    sqlite_autoincrement=True,  # otherwise SQLite would give the number of a deleted last row again
)

versions = Table(
    "version",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("name", Text, nullable=False),  # as it was given; empty: the code is on the node's own Python path
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False, server_default=""),  # why it is broken
    Column("digest", String(64), nullable=False),  # SHA-256 of the artefact; empty: there is none
    Column("file", Text, nullable=False, server_default=""),  # the artefact's file, below the folder of artefacts
    Column("settings_module", Text, nullable=False, server_default=""),
    Column("spiders", JSON(none_as_null=True)),  # their names; null: not listed yet
    # `wanted`: a node is to list the spiders; else the incarnation of the node that does so; empty: nothing to do
    Column("listing", String(64), nullable=False, server_default=""),
    Column("deployed_at", Double, nullable=False),
    Column("environment", String(16), nullable=False, server_default="shared"),
    Column("requirements", Text, nullable=False, server_default=""),  # given at the deployment, beside the artefact's
    Column("warnings", JSON(none_as_null=True)),  # texts: what the listing of the spiders warned of
    Column("listing_after", Double),  # a wanted listing is taken from this time on; null: at once
    Index(None, "project_id", "state"),
    Index(None, "listing"),
    sqlite_autoincrement=True,
)

jobs = Table(
    "job",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("spider", Text, nullable=False),
    Column("name", Text, nullable=False),  # Scrapyd's job id, chosen by the client; not unique
    # what a client sent in Idempotency-Key when it created the job; null: nothing
    Column("request_key", String(200)),
    Column("schedule_id", BigInteger),  # the schedule that made the job, which may be gone; null: none did
    Column("group_id", BigInteger),  # the job group that it belongs to; null: none
    Column("shares_frontier", Boolean, nullable=False, server_default=false()),  # True: with the others of its group
    Column("input_digest", String(64), nullable=False, server_default=""),  # SHA-256 of its input; empty: it has none
    Column("input_name", String(200), nullable=False, server_default=""),  # name of that file
    Column("input_use", String(200), nullable=False, server_default=""),  # start_urls, or the argument with its path
    Column("file_name", Text, nullable=False),  # of its log and items, without suffix; unique within the spider
    Column("version_name", Text),  # the version that was asked for; null: the default when the job starts
    Column("version_id", ForeignKey(versions.c.id)),  # the version of the last attempt; null: there was none
    Column("ran_version", Text),  # its name; empty: the code is on the node's own Python path; null: as above
    Column("arguments", JSON, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("label", String(100), nullable=False, server_default=""),  # only nodes with this label run it; empty: all do
    Column("priority", Double, nullable=False),
    Column("retries_left", Integer, nullable=False, server_default="0"),
    Column("retry_seconds", Double, nullable=False, server_default="30"),  # pause before the next retry
    Column("time_limit", Double, nullable=False, server_default="0"),  # seconds of an attempt; 0: none
    Column("memory_limit", BigInteger, nullable=False, server_default="0"),  # bytes of its process tree; 0: none
    Column("file_limit", BigInteger, nullable=False, server_default="0"),  # bytes of its log, and its items; 0: none
    Column("open_files_limit", Integer, nullable=False, server_default="0"),  # of each of its processes; 0: none
    Column("pending_limit", Double, nullable=False, server_default="0"),  # seconds; 0: none
    Column("min_items", Integer, nullable=False, server_default="0"),
    Column("max_errors", Integer, nullable=False, server_default="0"),  # 0: any number
    Column("good_reasons", JSON(none_as_null=True)),  # finish_reasons of a success; null: the usual ones
    Column("is_urgent", Boolean, nullable=False, server_default=false()),  # goes before all others of all projects
    Column("after_job", BigInteger),  # it does not start before this job has ended; null: it waits for none
    Column("stats", JSON(none_as_null=True)),  # Scrapy's counters of the last attempt; null: none were reported
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False, server_default=""),  # why it failed
    Column("attempt", Integer, nullable=False, server_default="0"),  # number of the last attempt
    # attempts that were followed by a retry: objects with attempt, node, incarnation, version, started_at, ended_at,
    # reason
    Column("earlier_attempts", JSON, nullable=False),
    Column("not_before", Double),  # a pending job is taken from this time on; null: at once
    Column("node", String(64), nullable=False, server_default=""),  # name of the node that has the last attempt
    Column("incarnation", String(64), nullable=False, server_default=""),  # of that node when it took the attempt
    Column("pid", Integer),
    Column("exit_code", Integer),
    Column("signal", Integer),
    Column("finish_reason", Text),
    Column("stops", Integer, nullable=False, server_default="0"),  # how often a stop was asked for
    Column("stop_signal", Integer),  # signal of the last stop
    Column("spider_job", BigInteger, nullable=False, server_default="0"),  # number among the jobs of its spider, from 1
    Column("notes", JSON(none_as_null=True)),  # values by name that clients attach to the job; null: none
    Column("has_files", Boolean, nullable=False, server_default=false()),  # True: its log or its items may exist
    Column("log_deleted", Boolean, nullable=False, server_default=false()),
    Column("items_deleted", Boolean, nullable=False, server_default=false()),
    Column("created_at", Double, nullable=False),
    Column("started_at", Double),
    Column("ended_at", Double),
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
    sqlite_autoincrement=True,
)  # fmt: skip

spiders = Table(
    "spider",
    METADATA,
    Column("project_id", ForeignKey(projects.c.id, ondelete="CASCADE"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),  # within the project, from 1
    Column("name", Text, nullable=False),
    Column("last_job", BigInteger, nullable=False, server_default="0"),  # number that its last job got
    UniqueConstraint("project_id", "name"),
)

job_tags = Table(
    "job_tag",
    METADATA,
    Column("job_id", ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("name", String(200), primary_key=True),
    Index(None, "name"),
)

environments = Table(
    "environment",
    METADATA,
    Column("version_id", ForeignKey(versions.c.id), primary_key=True),
    Column("node", String(64), primary_key=True),  # name of the node that has it
    Column("digest", String(64), nullable=False),  # of requirements, Python, platform and indexes
    Column("status", String(16), nullable=False),  # building, ready, failed
    Column("reason", Text, nullable=False, server_default=""),  # why it failed
    Column("requirements", JSON, nullable=False),  # lines of a requirements file
    Column("built", Text, nullable=False, server_default=""),  # versions of Python and Scrapy, and the builder
    Column("log", Text, nullable=False, server_default=""),  # end of what the builder printed
    Column("changed_at", Double, nullable=False),
)

nodes = Table(
    "node",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("name", String(64), nullable=False),
    Column("folder", String(64), nullable=False),  # random name of the node's folder: tells two machines apart
    Column("incarnation", String(64), nullable=False),  # random name of the process, new at each start
    Column("address", String(200), nullable=False, server_default=""),  # name of its machine, for people
    Column("release", String(100), nullable=False, server_default=""),  # release of Gossamer and of Python
    Column("slots", Integer, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("is_draining", Boolean, nullable=False, server_default=false()),  # True: it is given no more jobs
    Column("beats", BigInteger, nullable=False, server_default="0"),  # number of its calls that show that it lives
    # seconds of silence after which the node itself kills its jobs; a manager waits longer (`lost_after`)
    Column("limit_seconds", Double, nullable=False),
    Column("registered_at", Double, nullable=False),
    Column("beat_at", Double, nullable=False),  # for people; nothing is decided by it
    Column("lost_at", Double),  # when its jobs were taken from it; null: it is not lost
    UniqueConstraint("name"),
    sqlite_autoincrement=True,
)

labels = Table(
    "label",
    METADATA,
    Column("name", String(100), primary_key=True),
    Column("max_running", Integer, nullable=False),  # jobs with this label that run at a time, on all nodes
)

job_groups = Table(
    "job_group",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("name", Text, nullable=False),  # the names of its jobs begin with it
    Column("kind", String(16), nullable=False),  # split: each job has a part of a file; processes: one frontier
    Column("spider", Text, nullable=False),
    Column("request_key", String(200)),  # as that of a job
    Column("created_at", Double, nullable=False),
    UniqueConstraint("project_id", "request_key"),
    sqlite_autoincrement=True,
)

inputs = Table(
    "job_input",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("digest", String(64), nullable=False),  # SHA-256 of the content
    Column("name", String(200), nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("project_id", "digest"),
    sqlite_autoincrement=True,
)

input_parts = Table(
    "job_input_part",
    METADATA,
    Column("input_id", ForeignKey(inputs.c.id), primary_key=True),
    Column("start_at", BigInteger, primary_key=True),  # offset of the part
    Column("content", LargeBinary, nullable=False),
)

spider_policies = Table(
    "spider_policy",
    METADATA,
    Column("project_id", ForeignKey(projects.c.id), primary_key=True),
    Column("spider", Text, primary_key=True),
    Column("max_running", Integer),  # jobs of the spider that run at a time; null: as many as the project's
    # What jobs of the spider get instead of what the project says; null: what it says. See JobPolicy.
    Column("retries", Integer),
    Column("retry_seconds", Double),
    Column("time_limit", Double),
    Column("memory_limit", BigInteger),
    Column("file_limit", BigInteger),
    Column("open_files_limit", Integer),
    Column("pending_limit", Double),
    Column("min_items", Integer),
    Column("max_errors", Integer),
    Column("good_reasons", JSON(none_as_null=True)),
)

imports = Table(
    "import",
    METADATA,
    Column("source", String(200), primary_key=True),  # what was taken over from another program's database
)

webhooks = Table(
    "webhook",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id)),  # null: events of all projects, and of nodes
    Column("url", Text, nullable=False),
    Column("events", JSON, nullable=False),  # kinds of events; see EventKind
    Column("secret_name", String(64), nullable=False),  # under which the secret is encrypted; see manager/vault.py
    Column("secret", Text, nullable=False),  # its token
    Column("slow_factor", Double, nullable=False),  # a job that takes so many times as long as usual is slow
    Column("paused", Boolean, nullable=False, server_default=false()),
    Column("dropped", BigInteger, nullable=False, server_default="0"),  # events that were too many to keep
    Column("created_at", Double, nullable=False),
    Index(None, "project_id"),
    sqlite_autoincrement=True,
)

deliveries = Table(
    "webhook_delivery",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("webhook_id", ForeignKey(webhooks.c.id), nullable=False),
    Column("event_id", String(64), nullable=False),  # the same for all webhooks that get the event
    Column("event", String(40), nullable=False),  # its kind
    Column("body", JSON, nullable=False),
    Column("state", String(16), nullable=False),  # waiting, sent, dead
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_at", Double, nullable=False),  # a waiting one is sent from this time on
    Column("lease", String(64), nullable=False, server_default=""),  # of the manager that sends it
    Column("leased_until", Double, nullable=False, server_default="0"),
    Column("status", Integer),  # of the last answer; null: there was none
    Column("error", Text, nullable=False, server_default=""),  # why the last attempt failed
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    UniqueConstraint("webhook_id", "event_id"),
    Index(None, "state", "next_at"),
    Index(None, "webhook_id", "state"),
    sqlite_autoincrement=True,
)

variables = Table(
    "variable",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("name", String(200), nullable=False),
    Column("value", Text, nullable=False),  # of a secret: its token, see manager/vault.py
    Column("is_secret", Boolean, nullable=False),
    Column("changed_at", Double, nullable=False),
    UniqueConstraint("project_id", "name"),
    sqlite_autoincrement=True,
)

tokens = Table(
    "token",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("name", String(200), nullable=False),  # whose it is; shown in the audit
    Column("digest", String(64), nullable=False),  # SHA-256 of the secret
    Column("scope", String(16), nullable=False),
    Column("project", String(200), nullable=False, server_default=""),  # the only project it is for; empty: all
    Column("node", String(64), nullable=False, server_default=""),  # the only node that it is for; empty: any
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),  # null: never
    UniqueConstraint("digest"),
    sqlite_autoincrement=True,
)

audit = Table(
    "audit",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("at", Double, nullable=False),
    Column("actor", String(200), nullable=False),
    Column("action", String(40), nullable=False),
    Column("subject", Text, nullable=False),
    sqlite_autoincrement=True,
)

job_files = Table(
    "job_file",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("job_id", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("kind", String(8), nullable=False),  # log, items
    Column("length", BigInteger, nullable=False, server_default="0"),  # bytes of its chunks together
    Column("lines", BigInteger, nullable=False, server_default="0"),  # ends of lines in them
    Column("received", BigInteger, nullable=False, server_default="0"),  # end of what was received of the node's file
    Column("missing", BigInteger, nullable=False, server_default="0"),  # bytes of the node's file that are lost
    Column("added", Integer, nullable=False, server_default="0"),  # chunks since some were last merged
    Column("lease", String(64), nullable=False, server_default=""),  # of the merge or deletion that is under way
    Column("leased_until", Double, nullable=False, server_default="0"),
    Column("sweep_at", Double),  # time from which objects that no chunk names are deleted; null: there are none
    Column("read_until", Double, nullable=False, server_default="0"),  # a reader was at work that may go on until then
    Column("deleted_at", Double),  # since when clients do not see it; null: they do
    Column("changed_at", Double, nullable=False),
    UniqueConstraint("job_id", "attempt", "kind"),
    Index(None, "added"),
    Index(None, "sweep_at"),
    Index(None, "deleted_at"),
    sqlite_autoincrement=True,
)

chunks = Table(
    "chunk",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("file_id", ForeignKey(job_files.c.id), nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("length", BigInteger, nullable=False),
    Column("lines_before", BigInteger, nullable=False),  # ends of lines in the chunks before it
    Column("lines", Integer, nullable=False),  # ends of lines in it
    Column("line_index", JSON, nullable=False),  # see line_index.py
    Column("object", Text, nullable=False),  # name of its object in the storage
    UniqueConstraint("file_id", "offset"),
    Index(None, "file_id", "lines_before"),
    sqlite_autoincrement=True,
)

storage = Table(
    "storage",
    METADATA,
    Column("id", Integer, primary_key=True),  # 1: there is at most one row
    Column("identity", String(64), nullable=False),  # what the storage's marker says
    Column("is_marked", Boolean, nullable=False, server_default=false()),  # True: it has had the marker
)
