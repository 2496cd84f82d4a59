"""Every test of this folder runs on SQLite and on a real PostgreSQL server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gossamer_platform.state.database import StateDatabase
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.s3 import S3Server, s3_server


@pytest.fixture(scope="session")
def one_server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of an empty database."""
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("one_server")
        return server.new_database()
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture
async def database(url: str) -> AsyncIterator[StateDatabase]:
    """A database with all tables."""
    opened = StateDatabase(url)
    await opened.migrate()
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def one_s3_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server
