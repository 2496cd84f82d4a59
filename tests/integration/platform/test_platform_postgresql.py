"""A server whose state is in a real PostgreSQL database, which is killed and restarted while jobs run."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer_platform.serving.locks import wait_for_database
from gossamer_platform.state.database import StateDatabase
from tests.servers import crawling
from tests.servers.platform import RunningManager, running
from tests.servers.postgresql import PostgreSql, postgresql
from tests.servers.scrapyd import egg, scrapyd, spider, until

_WAITS = spider("waits", "while not os.path.exists('go'):\n    await asyncio.sleep(0.05)\nyield {'done': 1}")


@pytest.fixture
def database() -> Iterator[PostgreSql]:
    with postgresql() as server:
        yield server


def test_jobs_run_on_while_the_database_is_away(tmp_path: Path, database: PostgreSql) -> None:
    """A job that ends in the meantime is reported later, and one that was accepted before still starts."""
    conf = f"max_proc = 1\ndatabase_url = {database.new_database()}"
    with scrapyd(tmp_path, conf=conf) as server:
        server.deploy(egg(_WAITS + spider("good")))
        server.post("schedule", project="shop", spider="waits", jobid="first")
        server.post("schedule", project="shop", spider="good", jobid="second")
        server.running("first")
        database.kill()
        assert server.post("schedule", project="shop", spider="good")["status"] == "error"
        answer = server.client.get("/v1/jobs")
        assert (answer.status_code, answer.json()["status"]) == (503, 503)
        (tmp_path / "go").touch()
        until((tmp_path / "items/shop/waits/first.jl").exists)
        database.start()
        assert server.ended("first")["state"] == "finished"
        assert server.ended("second")["state"] == "finished"
        server.kill()
        server.start()
        assert {job["id"] for job in server.jobs()["finished"]} == {"first", "second"}
        assert not (tmp_path / "dbs/gossamer/state.db").exists()


def test_a_second_server_on_the_same_database_is_refused(tmp_path: Path, database: PostgreSql) -> None:
    address = database.new_database()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with scrapyd(tmp_path / "one", conf=f"database_url = {address}") as server:
        (tmp_path / "two/scrapyd.conf").write_text(
            f"[scrapyd]\nhttp_port = 0\nunix_socket_path = s\ndatabase_url = {address}"
        )
        second = crawling.gossamer("scrapyd", cwd=tmp_path / "two")
        assert second.returncode == 2
        assert "uses the database" in second.stderr
        assert server.get("daemonstatus")["status"] == "ok"


def test_a_manager_that_starts_before_its_database_waits_for_it(tmp_path: Path, database: PostgreSql) -> None:
    manager = RunningManager(tmp_path, "--database", database.new_database(), limit_seconds=60)
    database.stop()
    manager.launch()
    until(lambda: "waiting for the database" in manager.said(), what=manager.said)
    database.start()
    with running(manager):
        assert manager.client.get("/v1/jobs").json()["jobs"] == []
    assert "Traceback" not in manager.said()


async def test_a_server_stops_to_wait_when_it_is_stopped(database: PostgreSql) -> None:
    state = StateDatabase(database.new_database())
    database.stop()
    stopping = asyncio.Event()
    waiting = asyncio.create_task(wait_for_database(state, stopping, seconds=3600))
    stopping.set()
    assert await waiting is False
    await state.close()


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("postgresql+psycopg://x@127.0.0.1:1/x", "(tried for 15 seconds)"),
        ("mysql://x/y", "mysql is not supported as a database"),
    ],
)
def test_a_database_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path, address: str, said: str) -> None:
    (tmp_path / "scrapyd.conf").write_text(f"[scrapyd]\nhttp_port = 0\nunix_socket_path = s\ndatabase_url = {address}")
    done = crawling.gossamer("scrapyd", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
