"""Sessions of browsers that have logged in to the dashboard."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "browser_session",
        sa.Column("id", _ID, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("token_id", sa.BigInteger(), nullable=False),
        sa.Column("proof", sa.String(length=64), server_default="", nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_browser_session"),
        sa.UniqueConstraint("digest", name="uq_browser_session_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_browser_session_expires_at", "browser_session", ["expires_at"])
