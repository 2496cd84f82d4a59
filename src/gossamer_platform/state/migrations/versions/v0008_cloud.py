"""Numbers of spiders, numbers of jobs within their spider, and tags and notes of jobs.

A migration that was released must not change: databases that ran it would differ from new ones.
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Add the tables and the columns, and give numbers to the spiders and jobs that exist, in their order."""
    op.create_table(
        "spider",
        sa.Column("project_id", _ID, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("last_job", sa.BigInteger(), server_default="0", nullable=False),
        sa.ForeignKeyConstraint(
            ["project_id"], ["project.id"], name="fk_spider_project_id_project", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("project_id", "number", name="pk_spider"),
        sa.UniqueConstraint("project_id", "name", name="uq_spider_project_id_name"),
    )
    op.create_table(
        "job_tag",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_tag_job_id_job", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("job_id", "name", name="pk_job_tag"),
    )
    op.create_index("ix_job_tag_name", "job_tag", ["name"])
    op.add_column("job", sa.Column("spider_job", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("job", sa.Column("notes", sa.JSON(none_as_null=True), nullable=True))
    op.create_index("ix_job_project_id_spider_spider_job", "job", ["project_id", "spider", "spider_job"])
    op.execute(
        "INSERT INTO spider (project_id, number, name, last_job) "
        "SELECT project_id, row_number() OVER (PARTITION BY project_id ORDER BY min(id)), spider, count(*) "
        "FROM job GROUP BY project_id, spider"
    )
    op.execute(
        "UPDATE job SET spider_job = numbered.number FROM ("
        "SELECT id, row_number() OVER (PARTITION BY project_id, spider ORDER BY id) AS number FROM job"
        ") AS numbered WHERE numbered.id = job.id"
    )
