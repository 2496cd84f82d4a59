"""Use of the limits of domains over time."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "history_domain_use",
        sa.Column("domain", sa.String(255), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("used", sa.Double(), nullable=False),
        sa.Column("most", sa.BigInteger(), nullable=False),
        sa.Column("hits", sa.BigInteger(), nullable=False),
        sa.Column("window", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("domain", "minute", name="pk_history_domain_use"),
    )
    op.create_index("ix_history_domain_use_minute", "history_domain_use", ["minute"])
