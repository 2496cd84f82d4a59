"""Versions: which is the default, what uses one, what is known of environments, and how often a build is tried."""

import pytest
from sqlalchemy import Connection, update

from gossamer_platform.lifecycle import EnvironmentKind, JobState
from gossamer_platform.link import EnvironmentReport
from gossamer_platform.names import sanitized
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state import defaults, environments, jobs, projects
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.dispatch import JobTaker, take_jobs
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import versions as version_table


def _deploy(connection: Connection, name: str, suffix: str = ".egg") -> int:
    file = projects.version_file(connection, "shop", name, suffix)
    number = projects.add_version(connection, "shop", name, digest="d", file=file)
    assert number is not None
    assert projects.take_listing(connection, "node") is not None
    assert projects.record_listing(connection, number, incarnation="node", spiders=["a"], fault="") is not None
    return number


def _job_version(connection: Connection) -> str:
    """The version that a new job without one gets."""
    number = jobs.add_job(connection, NewJob("shop", "a", "job"))
    [row] = take_jobs(connection, JobTaker("node", f"call-{number}", 100), free=1)
    assert row.ran_version == projects.version_row(connection, row.version_id).name
    return str(row.ran_version)


async def test_a_pin_outlives_deployments_and_roll_back_goes_one_back(database: StateDatabase) -> None:
    def work(connection: Connection) -> None:
        for name in ("1.9", "1.10", "1.2"):
            _deploy(connection, name)
        assert defaults.default_of(connection, "shop") == ("1.10", False)
        assert defaults.roll_back(connection, "shop") == "1.9"
        _deploy(connection, "2")
        assert _job_version(connection) == "1.9"
        assert not defaults.pin(connection, "shop", "3")
        assert defaults.pin(connection, "shop", "1.2")
        assert defaults.roll_back(connection, "shop") is None
        _deploy(connection, "1.2")
        assert defaults.default_of(connection, "shop") == ("1.2", True)
        defaults.unpin(connection, "shop", "1.2")
        assert _job_version(connection) == "2"

    await database.write(work)


async def test_a_version_that_is_replaced_may_change_its_kind_of_file(database: StateDatabase) -> None:
    def work(connection: Connection) -> list[str]:
        for suffix in (".egg", ".whl"):
            _deploy(connection, "1", suffix)
        return [version.file for version in projects.ready_versions(connection, "shop")]

    assert await database.write(work) == ["shop/1.whl"]


@pytest.mark.parametrize("names", [("版本一", "版本二"), ("1.0+x", "1.0_x"), ("1.0", "1_0"), ("é", "_")])
async def test_versions_whose_names_scrapyd_would_store_as_one_stay_two(
    database: StateDatabase, names: tuple[str, str]
) -> None:
    """Each keeps its file, its pin and its jobs; a name that could be either is neither."""

    def work(connection: Connection) -> None:
        first, second = names
        _deploy(connection, first)
        assert defaults.pin(connection, "shop", first)
        _deploy(connection, second)
        known = projects.ready_versions(connection, "shop")
        assert {version.name for version in known} == set(names)
        assert len({version.file for version in known}) == 2
        assert defaults.default_of(connection, "shop") == (first, True)
        for name in names:
            _deploy(connection, name)  # again: it replaces its own
            found = projects.find_version(connection, "shop", name)
            assert found is not None
            assert found.name == name
        assert {version.file for version in projects.ready_versions(connection, "shop")} == {v.file for v in known}
        neither = sanitized(first)
        assert neither in names or projects.find_version(connection, "shop", neither) is None

    await database.write(work)


async def test_a_file_that_a_version_of_another_name_has_just_taken_is_not_used(database: StateDatabase) -> None:
    def work(connection: Connection) -> None:
        file = projects.version_file(connection, "shop", "1.0", ".egg")
        assert projects.version_file(connection, "shop", "1_0", ".egg") == file
        assert projects.add_version(connection, "shop", "1_0", digest="d", file=file) is not None
        assert projects.add_version(connection, "shop", "1.0", digest="d", file=file) is None

    await database.write(work)


async def test_what_uses_a_version(database: StateDatabase) -> None:
    def work(connection: Connection) -> list[list[str]]:
        for name in ("1.0", "2.0"):
            _deploy(connection, name)
        for version in ("1.0", "1_0", "1.0", None):
            jobs.add_job(connection, NewJob("shop", "a", f"job-{version}", version))
        assert len(take_jobs(connection, JobTaker("node", "c", 100), free=1)) == 1
        found = [projects.find_version(connection, "shop", name) for name in ("1.0", "2.0")]
        return [defaults.use_of(connection, "shop", version).reasons() for version in found if version]

    assert await database.write(work) == [
        ["1 job runs it", "2 pending jobs will run it"],
        ["it is the default", "1 pending job will run it"],
    ]


async def test_a_version_has_its_projects_kind_of_environment_or_its_own(database: StateDatabase) -> None:
    def work(connection: Connection) -> list[str]:
        one = _deploy(connection, "1")
        projects.change_project(connection, "shop", JobPolicy(), environment=EnvironmentKind.ISOLATED.value)
        two = _deploy(connection, "2")
        shared = EnvironmentKind.SHARED.value
        three = projects.add_version(connection, "shop", "3", digest="d", file="shop/3.egg", environment=shared)
        return [projects.version_row(connection, number).environment for number in (one, two, three)]

    assert await database.write(work) == ["shared", "isolated", "shared"]


async def test_the_environments_of_a_version(database: StateDatabase) -> None:
    def work(connection: Connection) -> None:
        number = _deploy(connection, "1")
        for node, status in (("one", "building"), ("two", "failed"), ("one", "ready")):
            report = EnvironmentReport(number, "d", status, requirements=("a",), log=f"{node} {status}")
            environments.record_environment(connection, node, report)
        environments.record_environment(connection, "one", EnvironmentReport(number + 1, "d", "ready"))
        rows = environments.environment_rows(connection, "shop", "1")
        assert {(row.node, row.status, row.version) for row in rows} == {("one", "ready", "1"), ("two", "failed", "1")}
        assert environments.environment_log(connection, "shop", "1", "one") == "one ready"
        assert environments.environment_log(connection, "shop", "1", "three") is None

    await database.write(work)


async def test_a_fault_of_a_node_is_tried_again_for_a_day(database: StateDatabase) -> None:
    def begin(connection: Connection) -> int:
        number = projects.add_version(connection, "shop", "1", digest="d", file="shop/1.egg")
        assert projects.take_listing(connection, "one") is not None
        assert projects.postpone_listing(connection, number, incarnation="other", reason="full") is None
        pause = projects.postpone_listing(connection, number, incarnation="one", reason="full")
        assert pause is not None
        assert 0 < pause < 60
        assert projects.take_listing(connection, "two") is None  # not yet
        row = projects.version_row(connection, number)
        assert (row.state, row.reason) == ("building", "full")
        return number

    def end(connection: Connection) -> str:
        old = update(version_table).values(deployed_at=version_table.c.deployed_at - 90_000, listing_after=None)
        connection.execute(old)
        assert projects.take_listing(connection, "two") is not None
        assert projects.postpone_listing(connection, number, incarnation="two", reason="full") is None
        return str(projects.version_row(connection, number).state)

    number = await database.write(begin)
    assert await database.write(end) == "broken"


async def test_a_job_that_a_node_cannot_start_waits(database: StateDatabase) -> None:
    def work(connection: Connection) -> None:
        _deploy(connection, "1")
        number = jobs.add_job(connection, NewJob("shop", "a", "job"))
        [row] = take_jobs(connection, JobTaker("node", "one", 100), free=1)
        assert jobs.record_return(connection, number, row.attempt, reason="environment: full") is JobState.PENDING
        found = jobs.find_job(connection, number)
        assert found is not None
        assert found.reason == "environment: full"
        assert take_jobs(connection, JobTaker("node", "two", 100), free=1) == []

    await database.write(work)
