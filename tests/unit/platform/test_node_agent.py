"""A node's agent with a manager in the same process: what it reports and leaves when a job cannot be started."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from gossamer_platform.link import (
    Announcement,
    Artefact,
    AttemptId,
    Ended,
    JobAssignment,
    JobInput,
    ManagerUnavailable,
    NodeOrders,
    NodeReport,
    NodeTurn,
)
from gossamer_platform.node import agent as agents
from gossamer_platform.node.agent import NodeAgent, NodeTimes

_ATTEMPT = AttemptId(7, 1)
_NO_ZIP = Artefact("shop", "1", "d" * 64, None, "")
"""Artefact that can be fetched and not unpacked."""


class StandInManager:
    """A manager that has one job, and that is away for some calls."""

    def __init__(self, job: JobAssignment) -> None:
        self._jobs = [job]
        self.away = 0
        """Calls for the artefact that are not answered yet."""
        self.fetched: list[Path] = []
        self.inputs: list[Path] = []
        self.asked: asyncio.Queue[int] = asyncio.Queue()
        """Free slots of each turn."""
        self.reports: asyncio.Queue[NodeReport] = asyncio.Queue()

    async def register(self, node: Announcement) -> Mapping[AttemptId, bool]:
        return {}

    def fetch(self, artefact: Artefact, target: Path) -> None:
        if self.away:
            self.away -= 1
            raise ManagerUnavailable("away")
        target.write_bytes(b"no zip")
        self.fetched.append(target)

    async def turn(self, asked: NodeTurn) -> NodeOrders:
        self.asked.put_nowait(asked.free)
        given = self._jobs[: asked.free]
        self._jobs = self._jobs[asked.free :]
        return NodeOrders(given)

    async def fetch_input(self, assignment: JobAssignment, target: Path) -> None:
        await asyncio.to_thread(target.write_bytes, b"http://127.0.0.1/")
        self.inputs.append(target)

    async def report(self, report: NodeReport) -> None:
        self.reports.put_nowait(report)


@pytest.fixture
def manager() -> StandInManager:
    given = JobInput("e" * 64, "urls.txt", "start_urls")
    job = JobAssignment(
        id=_ATTEMPT, spider="a", artefact=_NO_ZIP, arguments={}, settings={}, output="", items="", input=given
    )
    return StandInManager(job)


@contextlib.asynccontextmanager
async def _running(manager: StandInManager, folder: Path) -> AsyncIterator[NodeAgent]:
    agent = NodeAgent(manager, folder, slots=1, times=NodeTimes(1.0, 1.0))
    stopping = asyncio.Event()
    running = asyncio.create_task(agent.run(stopping))
    try:
        yield agent
    finally:
        stopping.set()
        await running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(agents.CHILDREN, "inherit", lambda: None)  # the tests' process has other children than shims


async def test_a_job_waits_for_its_code_while_the_manager_is_away(manager: StandInManager, tmp_path: Path) -> None:
    manager.away = 3
    async with _running(manager, tmp_path):
        report = await manager.reports.get()
    assert manager.away == 0
    assert isinstance(report, Ended)
    assert (report.attempt, len(manager.fetched)) == (_ATTEMPT, 1)
    assert "is not a ZIP file" in report.end.fault


async def test_the_input_of_a_job_that_cannot_be_started_is_deleted(manager: StandInManager, tmp_path: Path) -> None:
    async with _running(manager, tmp_path):
        assert isinstance(await manager.reports.get(), Ended)
        [given] = manager.inputs
        assert not given.parent.exists()
        assert not list((tmp_path / "attempts").glob(".input*"))


async def test_a_node_without_room_for_a_job_takes_none(
    manager: StandInManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(agents, "_ROOM_BYTES", 2**62)
    async with _running(manager, tmp_path) as agent:
        assert await manager.asked.get() == 0
        agent.wake()
        assert await manager.asked.get() == 0
        assert manager.reports.empty()
        monkeypatch.setattr(agents, "_ROOM_BYTES", 0)
        agent.wake()
        assert await manager.asked.get() == 1
        assert isinstance(await manager.reports.get(), Ended)
    said = [record.getMessage() for record in caplog.records if "the disk of" in record.getMessage()]
    assert ["takes no jobs" in text for text in said] == [True, False]
