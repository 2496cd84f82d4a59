"""Schedules that submit crawl requests, and what became of each.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table `crawl_firing`, and add a column of schedules."""
    op.add_column("schedule", sa.Column("crawl", sa.JSON()))
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
        sa.Column("status", sa.Integer()),
        sa.Column("result", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_crawl_firing"),
        sa.ForeignKeyConstraint(["schedule_id"], ["schedule.id"], name="fk_crawl_firing_schedule_id_schedule"),
        sa.UniqueConstraint("key", name="uq_crawl_firing_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_crawl_firing_state_next_at", "crawl_firing", ["state", "next_at"])
    op.create_index("ix_crawl_firing_schedule_id_id", "crawl_firing", ["schedule_id", "id"])
    op.create_index("ix_crawl_firing_ended_at", "crawl_firing", ["ended_at"])
