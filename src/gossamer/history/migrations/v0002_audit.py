"""Audit of the changes that clients make."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "history_change",
        sa.Column("id", _ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(40), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("origin", sa.String(200), server_default="", nullable=False),
        sa.Column("details", sa.Text(), server_default="{}", nullable=False),
        sa.Column("status", sa.Integer(), server_default="200", nullable=True),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history_change"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_history_change_at", "history_change", ["at"])
