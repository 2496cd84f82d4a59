"""Schema 0001 of the history, of databases from which migrations go on. It must not change."""

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def create(connection: sa.Connection) -> None:
    """Create the tables, and note their version."""
    op = Operations(MigrationContext.configure(connection))
    op.create_table("history_alembic_version", sa.Column("version_num", sa.String(32), primary_key=True))
    op.execute("INSERT INTO history_alembic_version VALUES ('0001')")
    op.create_table(
        "history_crawl",
        sa.Column("id", _ID, nullable=False),
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("appid", sa.Text(), nullable=False),
        sa.Column("crawlid", sa.Text(), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        sa.Column("ended", sa.Double(), nullable=True),
        sa.Column("done", sa.BigInteger(), nullable=False),
        sa.Column("info", sa.Text(), nullable=False),
        sa.Column("search", sa.Text(), nullable=False),
        sa.Column("sampled_at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history_crawl"),
        sa.UniqueConstraint("token", name="uq_history_crawl_token"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_history_crawl_started_id_search", "history_crawl", ["started", "id", "search"])
    op.create_index("ix_history_crawl_state_started_id", "history_crawl", ["state", "started", "id"])
    op.create_index("ix_history_crawl_appid_started_id", "history_crawl", ["appid", "started", "id"])
    op.create_index("ix_history_crawl_ended", "history_crawl", ["ended"])
    _create_facts(op)


def _create_facts(op: Operations) -> None:
    op.create_table(
        "history_end",
        sa.Column("event_id", sa.String(32), nullable=False),
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("run", sa.BigInteger(), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("purged", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("event_id", name="pk_history_end"),
    )
    op.create_index("ix_history_end_token_at", "history_end", ["token", "at"])
    op.create_index("ix_history_end_at", "history_end", ["at"])
    op.create_table(
        "history_failure",
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("request_id", sa.String(64), nullable=False),
        sa.Column("spider", sa.Text(), nullable=False),
        sa.Column("reason", sa.String(100), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("token", "request_id", name="pk_history_failure"),
    )
    op.create_index("ix_history_failure_token_reason_at", "history_failure", ["token", "reason", "at"])
    op.create_index("ix_history_failure_at", "history_failure", ["at"])
    op.create_table(
        "history_rate",
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("started", sa.Double(), nullable=False),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("fetched", "failed", "dropped", "waiting", "leased")
        ),
        sa.PrimaryKeyConstraint("token", "minute", name="pk_history_rate"),
    )
    op.create_index("ix_history_rate_minute_token", "history_rate", ["minute", "token"])
    op.create_table(
        "history_domain",
        sa.Column("token", sa.String(16), nullable=False),
        sa.Column("domain", sa.String(255), nullable=False),
        sa.PrimaryKeyConstraint("token", "domain", name="pk_history_domain"),
    )
    op.create_index("ix_history_domain_domain", "history_domain", ["domain"])
    op.create_table(
        "history_turn",
        sa.Column("name", sa.String(32), nullable=False),
        sa.Column("owner", sa.String(64), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_history_turn"),
    )
