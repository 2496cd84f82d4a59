"""The watched file of policies: what is wrong with it is said once, as long as it is wrong."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.domain import DomainPolicy
from gossamer.services.policy_file import PolicyFile
from gossamer.services.role import keep
from gossamer.telemetry.troubles import Troubles
from gossamer.valkey.shards import Shards
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
        async with asyncio.timeout(20):
            while not wanted():
                self._news.clear()
                await self._news.wait()


@pytest.fixture
async def frontier(one_server: Server) -> AsyncIterator[ValkeyFrontier]:
    shards = await Shards.connect(one_server.address)
    yield await ValkeyFrontier.over(shards, prefix="policy-file")
    await shards.close()


@contextlib.asynccontextmanager
async def watching(path: Path, frontier: ValkeyFrontier) -> AsyncIterator[Watched]:
    watched, stopping = Watched(path), asyncio.Event()
    troubles = Troubles(watched.say)
    task = asyncio.create_task(keep(PolicyFile(frontier, path, troubles), stopping=stopping, troubles=troubles))
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
    wrongs = ["cannot be read", "is no YAML", "in force again", "cannot be read", "in force again"]
    assert len(watched.said) == len(wrongs), watched.said
    assert all(wrong in sentence for wrong, sentence in zip(wrongs, watched.said, strict=True))
    assert (await frontier.domain_policies())[0] == DomainPolicy(hits=7)
