"""Logs and items that managers keep for nodes elsewhere, and the retention of jobs and their files.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables, and add the columns."""
    _create_files()
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
    op.create_table(
        "storage",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("identity", sa.String(length=64), nullable=False),
        sa.Column("is_marked", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_storage"),
    )
    for name, kind in _RETENTION:
        op.add_column("project", sa.Column(name, kind(), nullable=True))
    for name in ("log_deleted", "items_deleted"):
        op.add_column("job", sa.Column(name, sa.Boolean(), server_default=sa.false(), nullable=False))


_RETENTION = (
    ("keep_logs_days", sa.Double),
    ("keep_logs_jobs", sa.Integer),
    ("keep_items_days", sa.Double),
    ("keep_items_jobs", sa.Integer),
    ("keep_jobs_days", sa.Double),
    ("keep_jobs", sa.Integer),
)


def _create_files() -> None:
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
    for column in ("added", "sweep_at", "deleted_at"):
        op.create_index(f"ix_job_file_{column}", "job_file", [column])
