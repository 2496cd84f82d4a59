"""Removal of the numbers of nodes' calls: a node names the attempts that it has instead.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlite3

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the column and its index."""
    op.drop_index("ix_job_call", "job")
    # SQLite before 3.35 can drop a column only by a copy of the table, which would take minutes where it is long. There
    # the column stays; nothing uses it.
    if op.get_bind().dialect.name != "sqlite" or sqlite3.sqlite_version_info >= (3, 35):
        op.drop_column("job", "call")
