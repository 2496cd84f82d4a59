"""Every test of this folder runs on SQLite and on a real PostgreSQL server."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gossamer.history.store import HistoryStore
from tests.servers.postgresql import PostgreSql, postgresql


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
    return f"sqlite:///{tmp_path}/history.db"


@pytest.fixture
async def history(url: str) -> AsyncIterator[HistoryStore]:
    opened = HistoryStore(url)
    yield opened
    await opened.close()
