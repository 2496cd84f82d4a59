"""First schema of the platform's state.

It has the number of the last migration of the development versions, whose databases have these tables. A migration that
was released must not change: databases that ran it would differ from new ones.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_audit()
    _create_import()
    _create_job_file()
    _create_label()
    _create_node()
    _create_project()
    _create_storage()
    _create_token()
    _create_chunk()
    _create_job_group()
    _create_job_input()
    _create_schedule()
    _create_spider()
    _create_spider_policy()
    _create_variable()
    _create_version()
    _create_webhook()
    _create_crawl_firing()
    _create_environment()
    _create_job()
    _index_jobs()
    _create_job_input_part()
    _create_webhook_delivery()
    _create_job_tag()


def _create_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("action", sa.String(length=40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sqlite_autoincrement=True,
    )


def _create_import() -> None:
    op.create_table(
        "import",
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("source", name="pk_import"),
    )


def _create_job_file() -> None:
    op.create_table(
        "job_file",
        sa.Column("id", _ID, nullable=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("length", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("lines", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("received", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("missing", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("added", sa.Integer(), server_default="0", nullable=False),
        sa.Column("lease", sa.String(length=64), server_default="", nullable=False),
        sa.Column("leased_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("sweep_at", sa.Double(), nullable=True),
        sa.Column("read_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_job_file"),
        sa.UniqueConstraint("job_id", "attempt", "kind", name="uq_job_file_job_id_attempt_kind"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_file_added", "job_file", ["added"])
    op.create_index("ix_job_file_deleted_at", "job_file", ["deleted_at"])
    op.create_index("ix_job_file_sweep_at", "job_file", ["sweep_at"])


def _create_label() -> None:
    op.create_table(
        "label",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_label"),
    )


def _create_node() -> None:
    op.create_table(
        "node",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("folder", sa.String(length=64), nullable=False),
        sa.Column("incarnation", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=200), server_default="", nullable=False),
        sa.Column("release", sa.String(length=100), server_default="", nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("beats", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("limit_seconds", sa.Double(), nullable=False),
        sa.Column("registered_at", sa.Double(), nullable=False),
        sa.Column("beat_at", sa.Double(), nullable=False),
        sa.Column("lost_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_node"),
        sa.UniqueConstraint("name", name="uq_node_name"),
        sqlite_autoincrement=True,
    )


def _create_project() -> None:
    op.create_table(
        "project",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("label", sa.String(length=100), server_default="", nullable=False),
        sa.Column("retries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_seconds", sa.Double(), server_default="30", nullable=False),
        sa.Column("time_limit", sa.Double(), server_default="0", nullable=False),
        sa.Column("memory_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("file_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("open_files_limit", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pending_limit", sa.Double(), server_default="0", nullable=False),
        sa.Column("min_items", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("good_reasons", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("environment", sa.String(length=16), server_default="shared", nullable=False),
        sa.Column("pinned_version", sa.Text(), nullable=True),
        sa.Column("keep_logs_days", sa.Double(), nullable=True),
        sa.Column("keep_logs_jobs", sa.Integer(), nullable=True),
        sa.Column("keep_items_days", sa.Double(), nullable=True),
        sa.Column("keep_items_jobs", sa.Integer(), nullable=True),
        sa.Column("keep_jobs_days", sa.Double(), nullable=True),
        sa.Column("keep_jobs", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_project"),
        sa.UniqueConstraint("name", name="uq_project_name"),
        sqlite_autoincrement=True,
    )


def _create_storage() -> None:
    op.create_table(
        "storage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("is_marked", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_storage"),
    )


def _create_token() -> None:
    op.create_table(
        "token",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=200), server_default="", nullable=False),
        sa.Column("node", sa.String(length=64), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("digest", name="uq_token_digest"),
        sqlite_autoincrement=True,
    )


def _create_chunk() -> None:
    op.create_table(
        "chunk",
        sa.Column("id", _ID, nullable=False),
        sa.Column("file_id", _ID, nullable=False),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("lines_before", sa.BigInteger(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("line_index", sa.JSON(), nullable=False),
        sa.Column("object", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["file_id"], ["job_file.id"], name="fk_chunk_file_id_job_file"),
        sa.PrimaryKeyConstraint("id", name="pk_chunk"),
        sa.UniqueConstraint("file_id", "offset", name="uq_chunk_file_id_offset"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_chunk_file_id_lines_before", "chunk", ["file_id", "lines_before"])


def _create_job_group() -> None:
    op.create_table(
        "job_group",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("request_key", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_group_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_job_group"),
        sa.UniqueConstraint("project_id", "request_key", name="uq_job_group_project_id_request_key"),
        sqlite_autoincrement=True,
    )


def _create_job_input() -> None:
    op.create_table(
        "job_input",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_input_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_job_input"),
        sa.UniqueConstraint("project_id", "digest", name="uq_job_input_project_id_digest"),
        sqlite_autoincrement=True,
    )


def _create_schedule() -> None:
    op.create_table(
        "schedule",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("kind", sa.String(length=8), nullable=False),
        sa.Column("rule", sa.Text(), nullable=False),
        sa.Column("time_zone", sa.String(length=100), nullable=False),
        sa.Column("start_at", sa.Double(), nullable=False),
        sa.Column("end_at", sa.Double(), nullable=True),
        sa.Column("jitter", sa.Double(), nullable=False),
        sa.Column("missed", sa.String(length=8), nullable=False),
        sa.Column("if_running", sa.String(length=8), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("crawl", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("version_name", sa.Text(), nullable=True),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Double(), nullable=False),
        sa.Column("policy", sa.JSON(), nullable=False),
        sa.Column("next_at", sa.Double(), nullable=True),
        sa.Column("due_at", sa.Double(), nullable=True),
        sa.Column("last_at", sa.Double(), nullable=True),
        sa.Column("last_result", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_schedule_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_schedule"),
        sa.UniqueConstraint("project_id", "name", name="uq_schedule_project_id_name"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_schedule_due_at", "schedule", ["due_at"])


def _create_spider() -> None:
    op.create_table(
        "spider",
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_job", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name="fk_spider_project_id_project", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "number", name="pk_spider"),
        sa.UniqueConstraint("project_id", "name", name="uq_spider_project_id_name"),
    )


def _create_spider_policy() -> None:
    op.create_table(
        "spider_policy",
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("retries", sa.Integer(), nullable=True),
        sa.Column("retry_seconds", sa.Double(), nullable=True),
        sa.Column("time_limit", sa.Double(), nullable=True),
        sa.Column("memory_limit", sa.BigInteger(), nullable=True),
        sa.Column("file_limit", sa.BigInteger(), nullable=True),
        sa.Column("open_files_limit", sa.Integer(), nullable=True),
        sa.Column("pending_limit", sa.Double(), nullable=True),
        sa.Column("min_items", sa.Integer(), nullable=True),
        sa.Column("max_errors", sa.Integer(), nullable=True),
        sa.Column("good_reasons", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_spider_policy_project_id_project"),
        sa.PrimaryKeyConstraint("project_id", "spider", name="pk_spider_policy"),
    )


def _create_variable() -> None:
    op.create_table(
        "variable",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("is_secret", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_variable_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_variable"),
        sa.UniqueConstraint("project_id", "name", name="uq_variable_project_id_name"),
        sqlite_autoincrement=True,
    )


def _create_version() -> None:
    op.create_table(
        "version",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("file", sa.Text(), server_default="", nullable=False),
        sa.Column("settings_module", sa.Text(), server_default="", nullable=False),
        sa.Column("spiders", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("listing", sa.String(length=64), server_default="", nullable=False),
        sa.Column("deployed_at", sa.Double(), nullable=False),
        sa.Column("environment", sa.String(length=16), server_default="shared", nullable=False),
        sa.Column("requirements", sa.Text(), server_default="", nullable=False),
        sa.Column("warnings", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("listing_after", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_version_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_version"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_version_listing", "version", ["listing"])
    op.create_index("ix_version_project_id_state", "version", ["project_id", "state"])


def _create_webhook() -> None:
    op.create_table(
        "webhook",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=True),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("secret_name", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("slow_factor", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_webhook_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_project_id", "webhook", ["project_id"])


def _create_crawl_firing() -> None:
    op.create_table(
        "crawl_firing",
        sa.Column("id", _ID, nullable=False),
        sa.Column("schedule_id", _ID, nullable=False),
        sa.Column("instant", sa.Double(), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("requests", sa.JSON(), nullable=False),
        sa.Column("crawls", sa.JSON(), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("lease", sa.String(length=64), server_default="", nullable=False),
        sa.Column("leased_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("result", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedule.id"], name="fk_crawl_firing_schedule_id_schedule"),
        sa.PrimaryKeyConstraint("id", name="pk_crawl_firing"),
        sa.UniqueConstraint("key", name="uq_crawl_firing_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_crawl_firing_ended_at", "crawl_firing", ["ended_at"])
    op.create_index("ix_crawl_firing_schedule_id_id", "crawl_firing", ["schedule_id", "id"])
    op.create_index("ix_crawl_firing_state_next_at", "crawl_firing", ["state", "next_at"])


def _create_environment() -> None:
    op.create_table(
        "environment",
        sa.Column("version_id", _ID, nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("built", sa.Text(), server_default="", nullable=False),
        sa.Column("log", sa.Text(), server_default="", nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["version.id"], name="fk_environment_version_id_version"),
        sa.PrimaryKeyConstraint("version_id", "node", name="pk_environment"),
    )


def _create_job() -> None:
    op.create_table(
        "job",
        *_job_columns(),
        sa.Column("min_items", sa.Integer(), server_default="0", nullable=False),
        sa.Column("max_errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("good_reasons", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("is_urgent", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("after_job", sa.BigInteger(), nullable=True),
        sa.Column("stats", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("earlier_attempts", sa.JSON(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.Column("node", sa.String(length=64), server_default="", nullable=False),
        sa.Column("incarnation", sa.String(length=64), server_default="", nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("stops", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stop_signal", sa.Integer(), nullable=True),
        sa.Column("spider_job", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("notes", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("has_files", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("log_deleted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("items_deleted", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_project_id_project"),
        sa.ForeignKeyConstraint(["version_id"], ["version.id"], name="fk_job_version_id_version"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
        sa.UniqueConstraint("project_id", "request_key", name="uq_job_project_id_request_key"),
        sa.UniqueConstraint("project_id", "spider", "file_name", name="uq_job_project_id_spider_file_name"),
        sqlite_autoincrement=True,
    )


def _job_columns() -> list[sa.Column[Any]]:
    """Return the first half of the columns."""
    return [
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request_key", sa.String(length=200), nullable=True),
        sa.Column("schedule_id", sa.BigInteger(), nullable=True),
        sa.Column("group_id", sa.BigInteger(), nullable=True),
        sa.Column("shares_frontier", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("input_digest", sa.String(length=64), server_default="", nullable=False),
        sa.Column("input_name", sa.String(length=200), server_default="", nullable=False),
        sa.Column("input_use", sa.String(length=200), server_default="", nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("version_name", sa.Text(), nullable=True),
        sa.Column("version_id", _ID, nullable=True),
        sa.Column("ran_version", sa.Text(), nullable=True),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("label", sa.String(length=100), server_default="", nullable=False),
        sa.Column("priority", sa.Double(), nullable=False),
        sa.Column("retries_left", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_seconds", sa.Double(), server_default="30", nullable=False),
        sa.Column("time_limit", sa.Double(), server_default="0", nullable=False),
        sa.Column("memory_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("file_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("open_files_limit", sa.Integer(), server_default="0", nullable=False),
        sa.Column("pending_limit", sa.Double(), server_default="0", nullable=False),
    ]


def _index_jobs() -> None:
    op.create_index("ix_job_queue", "job", ["state", "project_id", sa.text("priority DESC"), "id"])
    op.create_index("ix_job_ended_at_id", "job", ["ended_at", "id"])
    op.create_index("ix_job_group_id_state", "job", ["group_id", "state"])
    op.create_index("ix_job_name", "job", ["name"])
    op.create_index("ix_job_project_id_input_digest", "job", ["project_id", "input_digest"])
    op.create_index("ix_job_project_id_spider_ended_at", "job", ["project_id", "spider", "ended_at"])
    op.create_index("ix_job_project_id_spider_spider_job", "job", ["project_id", "spider", "spider_job"])
    op.create_index("ix_job_schedule_id_state", "job", ["schedule_id", "state"])
    op.create_index("ix_job_state_is_urgent", "job", ["state", "is_urgent"])
    op.create_index("ix_job_state_label", "job", ["state", "label"])
    op.create_index("ix_job_state_node", "job", ["state", "node"])
    op.create_index("ix_job_version_id", "job", ["version_id"])


def _create_job_input_part() -> None:
    op.create_table(
        "job_input_part",
        sa.Column("input_id", _ID, nullable=False),
        sa.Column("start_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["input_id"], ["job_input.id"], name="fk_job_input_part_input_id_job_input"),
        sa.PrimaryKeyConstraint("input_id", "start_at", name="pk_job_input_part"),
    )


def _create_webhook_delivery() -> None:
    op.create_table(
        "webhook_delivery",
        sa.Column("id", _ID, nullable=False),
        sa.Column("webhook_id", _ID, nullable=False),
        sa.Column("event_id", sa.String(length=64), nullable=False),
        sa.Column("event", sa.String(length=40), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_at", sa.Double(), nullable=False),
        sa.Column("lease", sa.String(length=64), server_default="", nullable=False),
        sa.Column("leased_until", sa.Double(), server_default="0", nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhook.id"], name="fk_webhook_delivery_webhook_id_webhook"),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
        sa.UniqueConstraint("webhook_id", "event_id", name="uq_webhook_delivery_webhook_id_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_delivery_state_next_at", "webhook_delivery", ["state", "next_at"])
    op.create_index("ix_webhook_delivery_webhook_id_state", "webhook_delivery", ["webhook_id", "state"])


def _create_job_tag() -> None:
    op.create_table(
        "job_tag",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_tag_job_id_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_job_tag"),
    )
    op.create_index("ix_job_tag_name", "job_tag", ["name"])
