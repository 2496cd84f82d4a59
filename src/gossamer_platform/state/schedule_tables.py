"""Tables of schedules, and of the crawl requests that they submit. `tables.py` has what holds for all tables.

Fixed: names of tables, columns and constraints that a migration has created.
"""

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    Table,
    UniqueConstraint,
    false,
)

from gossamer_platform.state.tables import METADATA, ROW_ID, projects
from gossamer_platform.state.text import String, Text

schedules = Table(
    "schedule",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("project_id", ForeignKey(projects.c.id), nullable=False),
    Column("name", String(100), nullable=False),
    Column("kind", String(8), nullable=False),  # cron, every, once; see schedules/timing.py
    Column("rule", Text, nullable=False),
    Column("time_zone", String(100), nullable=False),
    Column("start_at", Double, nullable=False),
    Column("end_at", Double),
    Column("jitter", Double, nullable=False),
    Column("missed", String(8), nullable=False),  # skip, once: what happens after instants that were missed
    Column("if_running", String(8), nullable=False),  # run, skip: what happens if the job before has not ended
    Column("paused", Boolean, nullable=False, server_default=false()),
    Column("crawl", JSON(none_as_null=True)),  # crawl requests that it submits in place of a job; null: it makes jobs
    # The job that is made
    Column("spider", Text, nullable=False),  # empty: none is
    Column("version_name", Text),
    Column("arguments", JSON, nullable=False),
    Column("settings", JSON, nullable=False),
    Column("priority", Double, nullable=False),
    Column("policy", JSON, nullable=False),
    Column("next_at", Double),  # the next instant of the rule; null: there is none
    Column("due_at", Double),  # that instant with its jitter
    Column("last_at", Double),  # the last instant that has come
    Column("last_result", Text, nullable=False, server_default=""),  # what was done then
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),  # since when there is no next instant
    UniqueConstraint("project_id", "name"),
    Index(None, "due_at"),
    sqlite_autoincrement=True,
)

crawl_firings = Table(
    "crawl_firing",
    METADATA,
    Column("id", ROW_ID, primary_key=True),
    Column("schedule_id", ForeignKey(schedules.c.id), nullable=False),
    Column("instant", Double, nullable=False),  # of the schedule's rule; of one that was asked for: when that was
    Column("key", String(64), nullable=False),  # Idempotency-Key; follows from the schedule and the instant
    Column("state", String(16), nullable=False),  # waiting, submitted, failed
    Column("requests", JSON, nullable=False),  # crawl requests to submit; empty once it has ended
    Column("crawls", JSON, nullable=False),  # application and crawl of each, as pairs
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_at", Double, nullable=False),  # a waiting one is submitted from this time on
    Column("lease", String(64), nullable=False, server_default=""),  # of the manager that submits it
    Column("leased_until", Double, nullable=False, server_default="0"),
    Column("status", Integer),  # of the service's last answer; null: there was none
    Column("result", Text, nullable=False, server_default=""),  # what the service did, or why the last attempt failed
    Column("created_at", Double, nullable=False),
    Column("ended_at", Double),
    UniqueConstraint("key"),
    Index(None, "state", "next_at"),
    Index(None, "schedule_id", "id"),
    Index(None, "ended_at"),
    sqlite_autoincrement=True,
)
