"""Webhooks, and the events that are sent to them.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables `webhook` and `webhook_delivery`."""
    op.create_table(
        "webhook",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.JSON(), nullable=False),
        sa.Column("secret_name", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("slow_factor", sa.Double(), nullable=False),
        sa.Column("paused", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook"),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_webhook_project_id_project"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_project_id", "webhook", ["project_id"])
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
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text(), server_default="", nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_delivery"),
        sa.ForeignKeyConstraint(["webhook_id"], ["webhook.id"], name="fk_webhook_delivery_webhook_id_webhook"),
        sa.UniqueConstraint("webhook_id", "event_id", name="uq_webhook_delivery_webhook_id_event_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_webhook_delivery_state_next_at", "webhook_delivery", ["state", "next_at"])
    op.create_index("ix_webhook_delivery_webhook_id_state", "webhook_delivery", ["webhook_id", "state"])
