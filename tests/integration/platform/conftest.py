"""What tests of the platform share."""

from collections.abc import Iterator

import pytest

from tests.servers.postgresql import postgresql


@pytest.fixture(params=["sqlite", "postgresql"])
def state_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A line for scrapyd.conf that names a database for the server's state, or nothing: SQLite."""
    if request.param == "sqlite":
        yield ""
        return
    with postgresql() as server:
        yield f"database_url = {server.new_database()}"
