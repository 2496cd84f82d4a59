"""Speed of the whole service over time."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "history_service_rate",
        sa.Column("minute", sa.BigInteger(), nullable=False, autoincrement=False),
        sa.Column("pages_per_second", sa.Double(), nullable=False),
        sa.Column("waiting", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("minute", name="pk_history_service_rate"),
    )
