"""Nodes on other machines, and labels of jobs and nodes.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables `node` and `label`, and add the labels of projects and jobs."""
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
        sa.Column("lost_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_node"),
        sa.UniqueConstraint("name", name="uq_node_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "label",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("max_running", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_label"),
    )
    # ADD COLUMN itself: to copy the table, as a batch does, would take minutes where it is long, and lose indexes.
    for table in ("project", "job"):
        op.add_column(table, sa.Column("label", sa.String(length=100), server_default="", nullable=False))
    op.create_index("ix_job_state_label", "job", ["state", "label"])
