"""Fills the stores of a service: crawls in the history, jobs of a platform, and domains that wait in the frontier."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sqlalchemy import Connection, update

from bench.frontier.load import Load
from bench.history import fill as fill_history
from gossamer.control.domains import replace_all
from gossamer.frontier.base import Submission
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import Crawl, CrawlId, Terms
from gossamer.valkey.shards import Shards
from gossamer_platform.lifecycle import JobState
from gossamer_platform.state import audit, groups, jobs, nodes, projects, schedules, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.groups import NewGroup
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.nodes import NewNode
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tables import nodes as node_table
from gossamer_platform.state.tokens import TokenScope

LARGE = CrawlId("bench", "large")
"""Crawl that waits on all domains."""
POOL = "bench"
"""Pool of the crawls here. No worker is in it, so they stay as they are."""
_BATCH = 500
_DOMAINS_A_CALL = 1000


async def fill_platform(path: Path, *, job_count: int, other_count: int) -> None:
    """Make a platform's database with so many jobs that have ended, and so many projects, schedules, nodes, groups and
    tokens, each of which has entries in the audit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    database = StateDatabase(f"sqlite:///{path}")
    await database.migrate()
    for add, count in ((_add_others, other_count), (_add_jobs(other_count), job_count)):
        for first in range(0, count, _BATCH):
            numbers = range(first, min(count, first + _BATCH))
            await database.write(lambda c, add=add, numbers=numbers: add(c, numbers))  # type: ignore[misc]
    await database.close()


def _add_others(connection: Connection, numbers: range) -> None:
    for number in numbers:
        name = f"project-{number}"
        version = projects.add_version(connection, name, "1", digest="d", file=f"{name}/1.egg")
        assert version is not None
        projects.take_listing(connection, "node")
        projects.record_listing(connection, version, incarnation="node", spiders=["spider"], fault="")
        rule = {"kind": "every", "rule": "86400", "time_zone": "UTC", "start_at": time.time(), "end_at": None,
                "jitter": 0.0, "missed": "skip", "if_running": "run", "paused": True, "crawl": None, "spider": "spider",
                "version_name": None, "arguments": {}, "settings": {}, "priority": 0.0, "policy": {}}  # fmt: skip
        schedules.add_schedule(connection, name, f"schedule-{number}", rule)
        nodes.register_node(connection, NewNode(f"node-{number}", "f", "i", 2, [], "host", "1"), limit_seconds=30.0)
        groups.add_group(connection, NewGroup(NewJob(name, "spider", f"group-{number}"), processes=2))
        tokens.add_token(connection, f"token-{number}", TokenScope.READ)
        for action in ("version.deploy", "schedule.create", "token.make"):
            audit.record_action(connection, f"person-{number}", action, f"{name} 1")
    connection.execute(update(node_table).values(lost_at=time.time()))
    connection.execute(update(job_table).values(state=JobState.FINISHED.value, ended_at=time.time()))


def _add_jobs(project_count: int) -> Callable[[Connection, range], None]:
    def add(connection: Connection, numbers: range) -> None:
        for number in numbers:
            jobs.add_job(connection, NewJob(f"project-{number % project_count}", "spider", f"job-{number}"))
        ended = {"started_at": time.time() - 60, "ended_at": time.time(), "attempt": 1}
        is_new = job_table.c.state == JobState.PENDING.value
        failed = {"state": JobState.FAILED.value, "reason": "exit code 1", "exit_code": 1}
        connection.execute(update(job_table).where(is_new, job_table.c.id % 10 == 0).values(**failed, **ended))
        connection.execute(update(job_table).where(is_new).values(state=JobState.FINISHED.value, **ended))

    return add


async def fill_crawls(history_url: str, count: int) -> None:
    """Make a history with so many crawls."""
    history = HistoryStore(history_url)
    await fill_history(history, count)
    await history.close()


async def fill_frontier(address: str, *, domain_count: int, crawl_count: int, policies: str) -> None:
    """Set policies, let one crawl wait on so many domains, and begin so many others."""
    shards = await Shards.connect(address)
    frontier = await ValkeyFrontier.from_connection(shards)
    await replace_all(frontier, policies)
    load = Load(frontier.secret)
    for numbers in _parts(domain_count):
        batches = [load.batch(number, range(1)) for number in numbers]
        await frontier.submit([Submission(Crawl(id=LARGE, pool=POOL), Terms(), batches)])
    for number in range(crawl_count):
        crawl = Crawl(id=CrawlId("app0", f"crawl-{number * 100}"), pool=POOL)
        await frontier.submit([Submission(crawl, Terms(), [load.batch(number, range(3))])])
    await shards.close()


def _parts(count: int) -> Iterator[range]:
    for first in range(0, count, _DOMAINS_A_CALL):
        yield range(first, min(count, first + _DOMAINS_A_CALL))
