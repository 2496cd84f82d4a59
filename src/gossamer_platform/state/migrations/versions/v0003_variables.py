"""Environment variables and secrets of projects.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "variable",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("is_secret", sa.Boolean(), nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_variable_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_variable"),
        sa.UniqueConstraint("project_id", "name", name="uq_variable_project_id_name"),
        sqlite_autoincrement=True,
    )
