"""The watched file of policies: what is wrong with it is said once, as long as it is wrong."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from gossamer.control.domains import load_policies
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import DomainPolicy
from gossamer.services.maintenance import PolicyFile
from gossamer.services.role import run_role
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.shards import Shards
from tests.servers.service import up
from tests.servers.valkey import Server


class Watched:
    """A file under watch as a service keeps it, and what is said about it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.said: list[str] = []
        self._news = asyncio.Event()

    def say(self, sentence: str) -> None:
        self.said.append(sentence)
        self._news.set()

    async def hears(self, wanted: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not wanted():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def frontier(one_server: Server) -> AsyncIterator[ValkeyFrontier]:
    shards = await Shards.connect(one_server.address)
    yield await ValkeyFrontier.from_connection(shards, prefix="policy-file")
    await shards.close()


@contextlib.asynccontextmanager
async def watching(path: Path, frontier: ValkeyFrontier) -> AsyncIterator[Watched]:
    watched, stopping = Watched(path), asyncio.Event()
    troubles = Troubles(watched.say)
    task = asyncio.create_task(run_role(PolicyFile(frontier, path, troubles), stopping=stopping, troubles=troubles))
    try:
        yield watched
    finally:
        stopping.set()
        await task


async def test_each_fault_is_said_once_and_its_end_once(tmp_path: Path, frontier: ValkeyFrontier) -> None:
    path = tmp_path / "policies.yaml"
    async with watching(path, frontier) as watched:
        await watched.hears(lambda: len(watched.said) >= 1)
        path.write_text("domains: [")
        await watched.hears(lambda: len(watched.said) >= 2)
        path.write_text("default: {hits: 7}\n")
        await watched.hears(lambda: any("in force" in sentence for sentence in watched.said))
        path.rename(tmp_path / "away")
        await watched.hears(lambda: "cannot be read" in watched.said[-1])
        (tmp_path / "away").rename(path)
        await watched.hears(lambda: "in force" in watched.said[-1])
    wrongs = ["cannot be read", "not valid YAML", "in force again", "cannot be read", "in force again"]
    assert len(watched.said) == len(wrongs), watched.said
    assert all(wrong in sentence for wrong, sentence in zip(wrongs, watched.said, strict=True))
    assert (await frontier.domain_policies())[0] == DomainPolicy(hits=7)


def test_a_service_is_ready_when_the_policies_of_its_file_are_in_force(tmp_path: Path) -> None:
    """Also those of a file that was written a moment ago, as far as its times tell."""
    environment = {"GOSSAMER_SERVICE__POLICY_FILE": "late.yaml"}
    path = tmp_path / "late.yaml"
    path.write_text("default: {hits: 7}\n")
    os.utime(path, (time.time() + 3600, time.time() + 3600))
    with up(tmp_path, environment=environment) as service:
        answered = httpx.get(f"{service.api}/v1/domains", timeout=30)
        assert answered.json()["default"]["hits"] == 7, answered.text


class Looks:
    """A file's role that a test drives: each look comes a second after the one before, unless it is `hurried`."""

    def __init__(self, path: Path, frontier: ValkeyFrontier) -> None:
        self.hurried = False
        self._now = 0.0
        self.said: list[str] = []
        self._role = PolicyFile(
            frontier, path, Troubles(self.said.append), monotonic=lambda: self._now, clock=lambda: 0.0
        )

    async def look(self, times: int = 1) -> None:
        for _ in range(times):
            self._now += 0.01 if self.hurried else 1.0
            await self._role.run_once()


WHOLE = """\
default: {hits: 7}
domains:
  one.example: {hits: 1, window: 2}
  two.example: {hits: 3, window: 4}
blacklist: [bad.example, worse.example]
"""


@pytest.fixture
async def loaded(tmp_path: Path, frontier: ValkeyFrontier) -> tuple[Path, Looks]:
    """A file whose policies are in force."""
    path = tmp_path / "policies.yaml"
    path.write_text(WHOLE)
    looks = Looks(path, frontier)
    await looks.look(2)
    assert await frontier.domain_policies() == load_policies(WHOLE)
    return path, looks


CUT_OFF = {
    "empty": "",
    "comments": "\n# nothing\n",
    "no-domains": "domains:\n",
    "no-blacklist": "domains: {}\nblacklist:\n",
    "half": WHOLE[:60],
    "zeros": "\0" * 100,
}


@pytest.mark.parametrize("text", CUT_OFF.values(), ids=CUT_OFF)
async def test_an_emptied_or_cut_off_file_changes_nothing_and_is_said_once(
    loaded: tuple[Path, Looks], frontier: ValkeyFrontier, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path, looks = loaded
    path.write_text(text)
    await looks.look(5)
    assert await frontier.domain_policies() == load_policies(WHOLE)
    [said] = looks.said
    assert "the policies stay as they are" in said
    assert caplog.text.count("the policies stay as they are") == 1
    path.write_text(WHOLE + "\n")
    await looks.look(2)
    assert "in force again" in looks.said[-1]


async def test_a_file_that_is_being_written_is_not_loaded_before_it_stays_the_same(
    loaded: tuple[Path, Looks], frontier: ValkeyFrontier
) -> None:
    path, looks = loaded
    looks.hurried = True
    written = "domains:\n"
    for number in range(50):  # each prefix is sound by itself, and seen by two looks
        written += f"  site{number}.example: {{hits: 1, window: 1}}\n"
        path.write_text(written)
        await looks.look(2)
        assert await frontier.domain_policies() == load_policies(WHOLE)
    looks.hurried = False
    await looks.look()
    assert await frontier.domain_policies() == load_policies(written)
    assert looks.said == []


async def test_a_reset_that_says_so_is_done(loaded: tuple[Path, Looks], frontier: ValkeyFrontier) -> None:
    path, looks = loaded
    path.write_text("domains: {}\n")
    await looks.look(2)
    assert await frontier.domain_policies() == (DomainPolicy(), {})
    assert looks.said == []


async def test_at_the_start_a_file_that_is_old_is_loaded_at_the_first_look(
    tmp_path: Path, frontier: ValkeyFrontier
) -> None:
    path = tmp_path / "policies.yaml"
    path.write_text(WHOLE)
    later = path.stat().st_ctime + 10
    await PolicyFile(frontier, path, Troubles(), clock=lambda: later).run_once()
    assert await frontier.domain_policies() == load_policies(WHOLE)
