"""The node that a token belongs to.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add a column of tokens."""
    op.add_column("token", sa.Column("node", sa.String(length=64), server_default="", nullable=False))
