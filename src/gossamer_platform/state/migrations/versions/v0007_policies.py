"""Policies of spiders, further limits of jobs, urgent jobs, and Scrapy's counters.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table `spider_policy`, and add columns of projects and jobs."""
    # ADD COLUMN itself: to copy the table, as a batch does, would take minutes where it is long, and lose indexes.
    for table in ("project", "job"):
        op.add_column(table, sa.Column("pending_limit", sa.Double(), server_default="0", nullable=False))
        op.add_column(table, sa.Column("min_items", sa.Integer(), server_default="0", nullable=False))
        op.add_column(table, sa.Column("max_errors", sa.Integer(), server_default="0", nullable=False))
        op.add_column(table, sa.Column("good_reasons", sa.JSON()))
    op.add_column("job", sa.Column("is_urgent", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("job", sa.Column("after_job", sa.BigInteger()))
    op.add_column("job", sa.Column("stats", sa.JSON()))
    op.create_index("ix_job_state_is_urgent", "job", ["state", "is_urgent"])
    op.create_table(
        "spider_policy",
        sa.Column("project_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("max_running", sa.Integer()),
        sa.Column("retries", sa.Integer()),
        sa.Column("retry_seconds", sa.Double()),
        sa.Column("time_limit", sa.Double()),
        sa.Column("memory_limit", sa.BigInteger()),
        sa.Column("file_limit", sa.BigInteger()),
        sa.Column("pending_limit", sa.Double()),
        sa.Column("min_items", sa.Integer()),
        sa.Column("max_errors", sa.Integer()),
        sa.Column("good_reasons", sa.JSON()),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_spider_policy_project_id_project"),
        sa.PrimaryKeyConstraint("project_id", "spider", name="pk_spider_policy"),
    )
