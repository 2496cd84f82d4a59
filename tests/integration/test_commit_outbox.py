"""Links of finished pages wait for others where their shard is busy: fewer calls, and no page settled before its links
are added."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from gossamer.commit.committer import CommitLimits, Committer
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.keys import shard_of
from gossamer.model.crawl import DomainPolicy, Run, Terms
from gossamer.model.request import Batch, Lease, Outcome, Settlement
from gossamer.policy import outbox as outbox_policy
from gossamer.policy.outbox import OUTBOX_LINKS
from gossamer.sinks.base import Fanout
from gossamer.telemetry.logs import Troubles
from gossamer.valkey.scripts import Script
from gossamer.valkey.shards import Shards
from tests.servers import crawls
from tests.servers.valkey import standalone

SHARDS = 8
DOMAINS = [f"d{number}.test" for number in range(16)]
LONG_SECONDS = 60.0
TARGETS = ["t0.test", "t1.test", "t2.test"]
"""Domains on one shard each, none of which is the same."""
assert len({shard_of(domain, SHARDS) for domain in TARGETS}) == len(TARGETS)


class CountedShards(Shards):
    """They say how busy they are as the test wishes, and note their calls."""

    busy = 1.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.calls: list[tuple[str, int]] = []

    def load(self, key: str) -> float:
        return self.busy

    async def call(self, shard: int, script: Script, *arguments: Any, **options: Any) -> Any:
        reply = await super().call(shard, script, *arguments, **options)
        self.calls.append((script.name, shard))
        return reply

    def additions(self) -> list[int]:
        """The shards of the additions so far."""
        return [shard for name, shard in self.calls if name == "add"]


class Scene:
    """A committer whose batches have one page."""

    def __init__(self, frontier: ValkeyFrontier, shards: CountedShards, run: Run, leases: Sequence[Lease]) -> None:
        self.frontier, self.shards, self.run, self.leases = frontier, shards, run, leases
        self.settled: list[str] = []
        self.changed = asyncio.Event()

    def open(self, holder: Any, limits: CommitLimits) -> None:
        self.committer = Committer(self.frontier, holder, Fanout([]), Retrier(Troubles()), limits)
        self.committer.on_committed = self._committed
        self.running = asyncio.create_task(self.committer.run())

    def _committed(self, pages: Sequence[FinishedLease]) -> None:
        self.settled.extend(page.settlement.lease.domain for page in pages)
        self.changed.set()

    async def put(self, lease: Lease, domains: Sequence[str], *, links: int = 1) -> None:
        """A page with so many links to each of these domains."""
        batches = []
        for domain in domains:
            urls = [f"https://{domain}/{lease.domain}/{number}" for number in range(links)]
            marks = [self.frontier.spiders.fingerprint("link", url) for url in urls]
            batches.append(Batch("link", domain, 0, 1, urls, marks))
        await self.committer.put(FinishedLease(Settlement(lease, Outcome.FETCHED), batches=batches))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(LONG_SECONDS):
            while not condition():  # noqa: ASYNC110 - it is looked at in each turn of the event loop
                await asyncio.sleep(0)

    def waiting(self) -> int:
        """Pages whose links are in the outbox, if all have one for the same shard."""
        return max((group.links._count for group in self.committer._outbox._open.values()), default=0)

    async def fetched(self) -> int:
        return (await crawls.info(self.frontier)).total().fetched


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> AsyncIterator[Scene]:
    """Links wait for an hour, unless something ends that: a test that needs no such end does not end."""
    monkeypatch.setattr(outbox_policy, "OUTBOX_SECONDS", 3600.0)
    limits: CommitLimits = getattr(request, "param", CommitLimits(batch_pages=1))
    with standalone() as server:
        shards = await CountedShards.connect(server.address)
        frontier = await ValkeyFrontier.from_connection(shards, shards=SHARDS)
        await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
        run = await crawls.open_crawl(frontier, [f"https://{d}/{n}" for d in DOMAINS for n in range(2)], Terms())
        holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        leases: dict[str, Lease] = {}
        while len(leases) < len(DOMAINS):
            for lease in await holder.lease(limit=100):
                leases.setdefault(lease.domain, lease)
        scene = Scene(frontier, shards, run, [leases[domain] for domain in DOMAINS])
        assert not any(lease.is_last for lease in scene.leases)
        scene.open(holder, limits)
        shards.calls.clear()
        yield scene
        scene.running.cancel()
        await asyncio.gather(scene.running, return_exceptions=True)
        await holder.close()
        await frontier.close()


async def test_links_of_many_batches_share_a_call_where_shards_are_busy(scene: Scene) -> None:
    for lease in scene.leases:
        await scene.put(lease, TARGETS)
    await scene.until(lambda: scene.waiting() == len(scene.leases))
    assert scene.shards.additions() == []
    assert scene.settled == []
    assert scene.committer.pending == len(scene.leases)
    scene.committer.flush()
    async with asyncio.timeout(LONG_SECONDS):
        await scene.committer.wait_until_drained()
    assert sorted(scene.shards.additions()) == sorted(shard_of(domain, SHARDS) for domain in TARGETS)
    first_settlement = scene.shards.calls.index(next(call for call in scene.shards.calls if call[0] == "settle"))
    assert all(name != "add" for name, _ in scene.shards.calls[first_settlement:])
    assert sorted(scene.settled) == sorted(lease.domain for lease in scene.leases)
    total = (await crawls.info(scene.frontier)).total()
    assert total.fetched == len(scene.leases)
    assert total.added == 2 * len(DOMAINS) + len(TARGETS) * len(scene.leases)


async def test_nothing_waits_where_shards_have_time(scene: Scene) -> None:
    scene.shards.busy = 0.3
    for lease in scene.leases:
        await scene.put(lease, TARGETS)
    async with asyncio.timeout(LONG_SECONDS):
        await scene.committer.wait_until_drained()
    assert await scene.fetched() == len(scene.leases)


async def test_links_wait_only_for_the_busy_time(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """By themselves, without an end from outside."""
    monkeypatch.setattr(outbox_policy, "OUTBOX_SECONDS", 0.05)
    for lease in scene.leases:
        await scene.put(lease, TARGETS)
    async with asyncio.timeout(LONG_SECONDS):
        await scene.committer.wait_until_drained()
    assert len(scene.shards.additions()) < len(TARGETS) * len(scene.leases)
    assert await scene.fetched() == len(scene.leases)


async def test_a_group_that_fills_a_call_does_not_wait(scene: Scene) -> None:
    """The settlement that follows waits, as one that has no links of its own would."""
    await scene.put(scene.leases[0], [TARGETS[0]], links=OUTBOX_LINKS)
    await scene.until(lambda: scene.shards.additions() == [shard_of(TARGETS[0], SHARDS)])


@pytest.mark.parametrize("scene", [CommitLimits(batch_pages=1, waiting_bytes=0)], indirect=True)
async def test_nothing_waits_without_memory_for_it(scene: Scene) -> None:
    for lease in scene.leases[:4]:
        await scene.put(lease, TARGETS)
        await scene.until(lambda: len(scene.shards.additions()) >= len(TARGETS))
        scene.shards.calls.clear()


async def test_a_worker_that_ends_waits_for_nothing(scene: Scene) -> None:
    await scene.put(scene.leases[0], TARGETS)
    await scene.until(lambda: scene.waiting() == 1)
    scene.committer.stop_lingering()
    await scene.put(scene.leases[1], TARGETS)
    async with asyncio.timeout(LONG_SECONDS):
        await scene.committer.wait_until_drained()
    assert await scene.fetched() == 2


async def test_a_page_whose_links_wait_is_leased_again_after_a_crash(scene: Scene) -> None:
    """By another worker, though the links of nothing were added."""
    for lease in scene.leases:
        await scene.put(lease, TARGETS)
    await scene.until(lambda: scene.waiting() == len(scene.leases))
    scene.running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await scene.running
    total = (await crawls.info(scene.frontier)).total()
    assert (total.fetched, total.leased) == (0, total.added - total.queued)
    assert scene.shards.additions() == []
    await scene.committer._holder.close()
    heir = await scene.frontier.open_leaseholder(pool="shared", spiders=["link"])
    again: set[str] = set()
    async with asyncio.timeout(LONG_SECONDS):
        while not {lease.url for lease in scene.leases} <= again:
            again.update(lease.url for lease in await heir.lease(limit=100))
    await heir.close()


async def test_the_reply_to_a_lease_says_that_nothing_of_its_domain_is_left() -> None:
    with standalone() as server:
        shards = await CountedShards.connect(server.address)
        frontier = await ValkeyFrontier.from_connection(shards, shards=SHARDS)
        await frontier.set_domain_policy(None, DomainPolicy(hits=1, window_seconds=0.001, moderated=False))
        await crawls.open_crawl(frontier, [f"https://d{n}.test/{m}" for n in range(4) for m in range(n)], Terms())
        holder = await frontier.open_leaseholder(pool="shared", spiders=["link"])
        found: dict[str, list[bool]] = {}
        async with asyncio.timeout(LONG_SECONDS):
            while sum(map(len, found.values())) < 6:
                for lease in await holder.lease(limit=4):
                    found.setdefault(lease.domain, []).append(lease.is_last)
                    await holder.settle([Settlement(lease, Outcome.FETCHED)])
        assert found == {f"d{n}.test": [False] * (n - 1) + [True] for n in range(1, 4)}
        await holder.close()
        await frontier.close()


async def test_links_to_a_domain_that_has_nothing_left_do_not_wait(scene: Scene) -> None:
    last, other = scene.leases[0], scene.leases[1]
    last = msgspec.structs.replace(last, is_last=True)
    await scene.put(other, [other.domain])
    await scene.until(lambda: scene.waiting() == 1)
    await scene.put(last, [last.domain])
    await scene.until(lambda: scene.shards.additions() == [last.shard])


async def test_the_load_of_a_server_is_what_it_uses_of_a_core() -> None:
    busy = Script("busy", "local n = 0 for i = 1, 3000000 do n = n + i end return n")
    with standalone() as server:
        shards = await Shards.connect(server.address)
        [client] = await shards._topology.primaries()
        assert shards.load("{0}:") == 0.0

        async def look_again() -> None:
            client.forget_replicas()
            await client.replicas()

        await look_again()
        for _ in range(10):
            await shards.call(0, busy, ["{0}:"], [])
        await look_again()
        assert 0.0 < shards.load("{0}:") <= 1.1
        await shards.close()
