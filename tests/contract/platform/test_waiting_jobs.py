"""Reasons why a pending job waits, in the words that its client reads."""

from typing import Any

from sqlalchemy import Connection, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state import dispatch, jobs, nodes, policies, projects
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.projects import change_project
from gossamer_platform.state.tables import jobs as job_table


def _node(connection: Connection, name: str, slots: int, *labels: str) -> None:
    assert nodes.register_node(connection, NewNode(name, name, name, slots, labels, "", ""), limit_seconds=60)


def _take(connection: Connection, name: str, slots: int, *labels: str) -> list[int]:
    taken = dispatch.take_jobs(connection, dispatch.JobTaker(name, name, slots, labels), free=slots)
    return [row.id for row in taken]


async def test_a_pending_job_says_what_it_waits_for(database: StateDatabase) -> None:
    def add_version(connection: Connection) -> None:
        number = projects.add_version(connection, "shop", "1", digest="d", file="shop/1.egg")
        projects.take_listing(connection, "n")
        assert projects.record_listing(connection, number, incarnation="n", spiders=["a"], fault="")

    def steps(connection: Connection) -> list[str]:
        number = jobs.add_job(connection, NewJob("shop", "a", "waits", label="gpu"))

        def says() -> str:
            return dispatch.waits_for(connection, jobs.find_job(connection, number))  # type: ignore[arg-type]

        def change(**columns: Any) -> None:
            connection.execute(update(job_table).where(job_table.c.id == number).values(**columns))

        found = [says()]
        add_version(connection)
        found.append(says())
        _node(connection, "one", 1)
        found.append(says())
        _node(connection, "two", 1, "gpu")
        found.append(says())
        nodes.set_draining(connection, "two", is_draining=True)
        found.append(says())
        nodes.set_draining(connection, "two", is_draining=False)
        other = jobs.add_job(connection, NewJob("shop", "a", "runs", label="gpu", priority=1.0))
        assert _take(connection, "two", 1, "gpu") == [other]
        found.append(says())
        nodes.limit_label(connection, "gpu", 1)
        found.append(says())
        policies.set_spider_policy(connection, "shop", "a", JobPolicy(), max_running=1)
        found.append(says())
        change_project(connection, "shop", JobPolicy(), max_running=1)
        found.append(says())
        change(version_name="9")
        found.append(says())
        change(not_before=DatabaseNow() + 30)
        found.append(says())
        change(after_job=other)
        found.append(says())
        return found

    assert await database.write(steps) == [
        "a ready version of shop",
        "a node: none is online",
        "a node with the label gpu: none is online",
        "its turn: a slot is free",
        "a node with the label gpu that takes jobs: all are draining",
        "a free slot: the nodes with the label gpu have 1, all in use",
        "the limit of the label gpu: its max_running is reached",
        "the limit of a: the spider's max_running is reached",
        "the limit of shop: max_running is 1",
        "version 9, which is not ready, of shop",
        "its next attempt, in 30 s",
        "the end of job 2",
    ]
