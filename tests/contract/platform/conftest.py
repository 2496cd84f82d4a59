"""Every test of this folder runs on SQLite and on a real PostgreSQL server."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from gossamer_platform.state.database import StateDatabase
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.s3 import S3Server, s3_server


@pytest.fixture(scope="session")
def one_server() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Address of a database: of an empty one, or with all tables if the test asks for `database` as well."""
    like = request.getfixturevalue(f"{request.param}_like") if "database" in request.fixturenames else None
    if request.param == "postgresql":
        server: PostgreSql = request.getfixturevalue("one_server")
        return server.new_database(like=like)
    if like:
        shutil.copy(str(make_url(like).database), tmp_path / "state.db")
    return f"sqlite:///{tmp_path}/state.db"


@pytest.fixture(scope="session")
def sqlite_like(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _migrated(f"sqlite:///{tmp_path_factory.mktemp('like')}/state.db")


@pytest.fixture(scope="session")
def postgresql_like(one_server: PostgreSql) -> str:
    return _migrated(one_server.new_database())


def _migrated(url: str) -> str:
    """Make all tables: once for all tests, because it takes as long as most of them."""

    async def migrate() -> None:
        database = StateDatabase(url)
        await database.migrate()
        await database.close()

    asyncio.run(migrate())
    return url


@pytest.fixture
async def database(url: str) -> AsyncIterator[StateDatabase]:
    """A database with all tables."""
    opened = StateDatabase(url)
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def one_s3_server() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server
