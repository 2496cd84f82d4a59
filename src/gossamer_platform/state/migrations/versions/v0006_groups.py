"""Job groups, and inputs of jobs.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables and the columns."""
    op.create_table(
        "job_group",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("request_key", sa.String(length=200), nullable=True),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_group_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_job_group"),
        sa.UniqueConstraint("project_id", "request_key", name="uq_job_group_project_id_request_key"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "job_input",
        sa.Column("id", _ID, nullable=False),
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("length", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["project_id"], ["project.id"], name="fk_job_input_project_id_project"),
        sa.PrimaryKeyConstraint("id", name="pk_job_input"),
        sa.UniqueConstraint("project_id", "digest", name="uq_job_input_project_id_digest"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "job_input_part",
        sa.Column("input_id", _ID, nullable=False),
        sa.Column("start_at", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["input_id"], ["job_input.id"], name="fk_job_input_part_input_id_job_input"),
        sa.PrimaryKeyConstraint("input_id", "start_at", name="pk_job_input_part"),
    )
    op.add_column("job", sa.Column("group_id", sa.BigInteger(), nullable=True))
    op.add_column("job", sa.Column("shares_frontier", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("job", sa.Column("input_digest", sa.String(length=64), server_default="", nullable=False))
    op.add_column("job", sa.Column("input_name", sa.String(length=200), server_default="", nullable=False))
    op.add_column("job", sa.Column("input_use", sa.String(length=200), server_default="", nullable=False))
    op.create_index("ix_job_group_id_state", "job", ["group_id", "state"])
    op.create_index("ix_job_project_id_input_digest", "job", ["project_id", "input_digest"])
