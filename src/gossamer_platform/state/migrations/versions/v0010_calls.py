"""An index by which a repeated call of a node finds its jobs.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the index."""
    op.create_index("ix_job_call", "job", ["call"])
