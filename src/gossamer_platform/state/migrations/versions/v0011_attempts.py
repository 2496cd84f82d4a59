"""Version and node's process of each job's last attempt, and a limit of open files.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns, and fill in the versions of jobs that have begun."""
    for table in ("project", "job"):
        op.add_column(table, sa.Column("open_files_limit", sa.Integer(), server_default="0", nullable=False))
    op.add_column("spider_policy", sa.Column("open_files_limit", sa.Integer()))
    op.add_column("job", sa.Column("ran_version", sa.Text()))
    op.add_column("job", sa.Column("incarnation", sa.String(length=64), server_default="", nullable=False))
    op.execute(
        "UPDATE job SET ran_version = (SELECT version.name FROM version WHERE version.id = job.version_id)"
        " WHERE version_id IS NOT NULL"
    )
