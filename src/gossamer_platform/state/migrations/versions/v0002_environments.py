"""Isolated environments of versions, and the pinned version of a project.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the columns and the table."""
    op.add_column("project", sa.Column("environment", sa.String(length=16), server_default="shared", nullable=False))
    op.add_column("project", sa.Column("pinned_version", sa.Text(), nullable=True))
    op.add_column("version", sa.Column("environment", sa.String(length=16), server_default="shared", nullable=False))
    op.add_column("version", sa.Column("requirements", sa.Text(), server_default="", nullable=False))
    op.add_column("version", sa.Column("warnings", sa.JSON(none_as_null=True), nullable=True))
    op.add_column("version", sa.Column("listing_after", sa.Double(), nullable=True))
    op.create_table(
        "environment",
        sa.Column("version_id", _ID, nullable=False),
        sa.Column("node", sa.String(length=64), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("status", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.Text(), server_default="", nullable=False),
        sa.Column("requirements", sa.JSON(), nullable=False),
        sa.Column("built", sa.Text(), server_default="", nullable=False),
        sa.Column("log", sa.Text(), server_default="", nullable=False),
        sa.Column("changed_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["version_id"], ["version.id"], name="fk_environment_version_id_version"),
        sa.PrimaryKeyConstraint("version_id", "node", name="pk_environment"),
    )
