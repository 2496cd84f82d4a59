"""A lease before a commit is not made where it would get nothing."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, cast

import pytest

from gossamer.commit import committer as committer_module
from gossamer.commit.committer import Committer, LeasesAfterCommits
from gossamer.commit.outlinks import FinishedLease
from gossamer.commit.retrier import Retrier
from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.sinks.base import Fanout
from gossamer.telemetry.logs import Troubles


class SlowHolder:
    """Settles leases when it is told to."""

    def __init__(self) -> None:
        self.may_settle = asyncio.Event()

    def holds(self, lease: Lease) -> bool:
        return True

    async def settle(self, settlements: Sequence[Settlement], *, data_epoch: int | None = None) -> None:
        await self.may_settle.wait()


class Frontier:
    shard_count, data_epoch = 1, 0


def finished() -> FinishedLease:
    lease = Lease(
        id=1, worker="worker-1", shard=0, run=Run(Crawl(id=CrawlId("test", "1")), 1, 1), spider="link", domain="a.test",
        priority=1, depth=0, attempt=0, deaths=0, url="http://a.test/", payload=None, terms=Terms(), request_id="",
        identity=b"", charged=0.0,
    )  # fmt: skip
    return FinishedLease(Settlement(lease, Outcome.FETCHED))


@pytest.fixture
async def scene(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Committer, SlowHolder]]:
    """A committer with a page that is settled when the holder is told to."""
    monkeypatch.setattr(committer_module, "_SETTLED_WITHIN_SECONDS", 60.0)
    holder = SlowHolder()
    committer = Committer(cast(Any, Frontier()), cast(Any, holder), Fanout([]), Retrier(Troubles()))
    running = asyncio.create_task(committer.run())
    assert committer.put_at_once(finished())
    committer.flush()
    yield committer, holder
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_lease_waits_for_the_commit_if_one_before_a_commit_got_nothing(
    scene: tuple[Committer, SlowHolder],
) -> None:
    committer, holder = scene
    leases = LeasesAfterCommits(committer)
    await leases.before_lease()  # does not wait: nothing is known yet
    leases.after_lease(0, has_later_work=False)
    waiting = asyncio.ensure_future(leases.before_lease())
    done, _ = await asyncio.wait((waiting,), timeout=0.05)
    assert not done
    holder.may_settle.set()
    await waiting
    assert not committer.pending


@pytest.mark.parametrize(("count", "has_later_work"), [(1, False), (0, True)])
async def test_a_lease_does_not_wait_where_one_before_a_commit_got_some_or_others_are_due_later(
    scene: tuple[Committer, SlowHolder], count: int, has_later_work: bool
) -> None:
    committer, _ = scene
    leases = LeasesAfterCommits(committer)
    await leases.before_lease()
    leases.after_lease(count, has_later_work=has_later_work)
    await leases.before_lease()
    assert committer.pending


async def test_a_lease_waits_no_longer_than_the_limit(
    scene: tuple[Committer, SlowHolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer_module, "_SETTLED_WITHIN_SECONDS", 0.01)
    committer, _ = scene
    leases = LeasesAfterCommits(committer)
    await leases.before_lease()
    leases.after_lease(0, has_later_work=False)
    await leases.before_lease()
    assert committer.pending
