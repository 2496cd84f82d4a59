"""Outcome, client and further facts of the changes in the audit."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the columns. An entry of an earlier version is of a change that was made."""
    op.add_column("audit", sa.Column("origin", sa.String(200), server_default="", nullable=False))
    op.add_column("audit", sa.Column("details", sa.Text(), server_default="{}", nullable=False))
    op.add_column("audit", sa.Column("status", sa.Integer(), server_default="200", nullable=True))
    op.add_column("audit", sa.Column("reason", sa.Text(), server_default="", nullable=False))
