"""First tables: projects, versions, jobs, schedules, tokens, audit.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables."""
    _create_projects()
    _create_jobs()
    _create_schedules()
    _create_tokens()


def _create_projects() -> None:
    op.create_table(
        "import",
        sa.Column("source", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("source", name="pk_import"),
    )
    op.create_table(
        "project",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("turn", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=True),
        sa.Column("retries", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_seconds", sa.Double(), server_default="30", nullable=False),
        sa.Column("time_limit", sa.Double(), server_default="0", nullable=False),
        sa.Column("memory_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("file_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_project"),
        sa.UniqueConstraint("name", name="uq_project_name"),
        sqlite_autoincrement=True,
    )
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
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_version_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_version"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_version_listing", "version", ["listing"])
    op.create_index("ix_version_project_id_state", "version", ["project_id", "state"])


def _create_jobs() -> None:
    op.create_table(
        "job",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("request_key", sa.String(length=200), nullable=True),
        sa.Column("schedule_id", sa.BigInteger(), nullable=True),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("version_name", sa.Text(), nullable=True),
        sa.Column("version_id", _ID, nullable=True),
        sa.Column("arguments", sa.JSON(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("priority", sa.Double(), nullable=False),
        sa.Column("retries_left", sa.Integer(), server_default="0", nullable=False),
        sa.Column("retry_seconds", sa.Double(), server_default="30", nullable=False),
        sa.Column("time_limit", sa.Double(), server_default="0", nullable=False),
        sa.Column("memory_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("file_limit", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("attempt", sa.Integer(), server_default="0", nullable=False),
        sa.Column("earlier_attempts", sa.JSON(), nullable=False),
        sa.Column("not_before", sa.Double(), nullable=True),
        sa.Column("node", sa.String(length=64), server_default="", nullable=False),
        sa.Column("call", sa.String(length=80), server_default="", nullable=False),
        sa.Column("pid", sa.Integer(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("signal", sa.Integer(), nullable=True),
        sa.Column("finish_reason", sa.Text(), nullable=True),
        sa.Column("stops", sa.Integer(), server_default="0", nullable=False),
        sa.Column("stop_signal", sa.Integer(), nullable=True),
        sa.Column("has_files", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=True),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_project_id_project"),
        sa.ForeignKeyConstraint(["version_id"], ["version.id"], name="fk_job_version_id_version"),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
        sa.UniqueConstraint("project_id", "spider", "file_name", name="uq_job_project_id_spider_file_name"),
        sa.UniqueConstraint("project_id", "request_key", name="uq_job_project_id_request_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_job_ended_at_id", "job", ["ended_at", "id"])
    op.create_index("ix_job_schedule_id_state", "job", ["schedule_id", "state"])
    op.create_index("ix_job_version_id", "job", ["version_id"])
    op.create_index("ix_job_name", "job", ["name"])
    op.create_index("ix_job_project_id_spider_ended_at", "job", ["project_id", "spider", "ended_at"])
    op.create_index("ix_job_state_node", "job", ["state", "node"])
    op.create_index("ix_job_queue", "job", ["state", "project_id", sa.text("priority DESC"), "id"])


def _create_schedules() -> None:
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


def _create_tokens() -> None:
    op.create_table(
        "token",
        sa.Column("id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("scope", sa.String(length=16), nullable=False),
        sa.Column("project", sa.String(length=200), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("digest", name="uq_token_digest"),
        sqlite_autoincrement=True,
    )
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
