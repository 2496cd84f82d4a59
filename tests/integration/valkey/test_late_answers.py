"""A hit is charged when the server hands it out, however long the answer then travels."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest

from gossamer.frontier.base import RedirectPermit
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.frontier.valkey.leaseholder import ValkeyLeaseholder
from gossamer.model.crawl import DomainPolicy, Terms
from gossamer.model.request import Lease, Outcome, Settlement
from gossamer.policy.lateness import is_late
from tests.chaos.tcp_proxy import Link, Network
from tests.servers import crawls
from tests.servers.valkey import standalone

EACH_WAY_SECONDS = 0.25
SITE = "http://site0.test"


@pytest.fixture
def link() -> Iterator[Link]:
    with standalone(tcp=True) as server, Network("127.0.0.1", server.port) as network:
        yield network.link()


@pytest.fixture
async def holder(link: Link) -> AsyncIterator[ValkeyLeaseholder]:
    frontier = await ValkeyFrontier.connect(f"redis://127.0.0.1:{link.port}")
    await frontier.set_domain_policy(None, DomainPolicy(hits=1000, window_seconds=1.0, moderated=False))
    await crawls.open_crawl(frontier, [f"{SITE}/{n}" for n in range(100)], Terms())
    seat = await frontier.open_leaseholder(pool="shared", spiders=["link"])
    yield seat
    link.slow(0)
    link.resume()
    await seat.close()
    await frontier.close()


def late(lease: Lease) -> bool:
    return is_late(lease.charged, now=time.monotonic())


async def one(holder: ValkeyLeaseholder) -> Lease:
    (lease,) = await holder.lease(limit=1)
    return lease


async def test_a_lease_that_was_held_up_is_late(holder: ValkeyLeaseholder, link: Link) -> None:
    assert not late(await one(holder))
    link.slow(EACH_WAY_SECONDS)
    assert late(await one(holder))
    link.slow(0)
    assert not late(await one(holder))


async def test_a_way_that_has_become_longer_is_no_reason(holder: ValkeyLeaseholder, link: Link) -> None:
    await one(holder)
    link.slow(EACH_WAY_SECONDS / 2)
    for _ in range(8):
        lease = await one(holder)
    assert not late(lease)


async def test_a_call_that_is_repeated_counts_from_the_first(holder: ValkeyLeaseholder, link: Link) -> None:
    """Its answer, lost with the connection, is given again."""
    await one(holder)
    link.slow(EACH_WAY_SECONDS)
    holder._sessions[0]._unanswered_since = time.monotonic() - 5.0  # as a call that was never answered
    assert time.monotonic() - (await one(holder)).charged > 4.0


async def test_a_redirects_hit_that_comes_late_is_not_used(holder: ValkeyLeaseholder, link: Link) -> None:
    lease = await one(holder)
    assert await holder.request_redirect(lease, fingerprint=1, payload=b"") is RedirectPermit.GRANTED
    link.slow(EACH_WAY_SECONDS)
    assert await holder.request_redirect(lease, fingerprint=2, payload=b"") is RedirectPermit.WAIT
    link.slow(0)
    await holder.settle([Settlement(lease, Outcome.FETCHED)])


async def test_a_hit_without_a_lease_neither(holder: ValkeyLeaseholder, link: Link) -> None:
    lease = await one(holder)
    assert await holder.charge_hit(lease.run, spider="link", domain="site0.test") == 0.0
    link.slow(EACH_WAY_SECONDS)
    wait = await holder.charge_hit(lease.run, spider="link", domain="site0.test")
    assert wait is not None
    assert 0 < wait < 0.1


async def test_answers_to_a_name_that_was_declared_dead_change_nothing(holder: ValkeyLeaseholder, link: Link) -> None:
    """Its leases are others' by now; those of the next name stay."""
    lease = await one(holder)
    link.stall()
    leasing = asyncio.create_task(holder.lease(limit=5))
    settling = asyncio.create_task(holder.settle([Settlement(lease, Outcome.FETCHED)]))
    while holder._sessions[0]._unanswered_since is None:  # noqa: ASYNC110 - it has been sent then
        await asyncio.sleep(0)
    frontier = await ValkeyFrontier.connect(f"redis://127.0.0.1:{link.server_port}", clock=lambda: time.time() + 3600)
    await frontier.maintain()
    await frontier.close()
    link.resume()
    assert await leasing == []
    await settling
    assert holder.session_name(0) != lease.worker
    lease = await one(holder)
    assert not late(lease)
    await holder.settle([Settlement(lease, Outcome.FETCHED)])
    assert holder.session_name(0) == lease.worker


async def test_a_process_that_stands_still_again_and_again_takes_no_answer_for_punctual(
    holder: ValkeyLeaseholder,
) -> None:
    """Its answers are there in time, and it reads them late: however often, that is not the way that has become
    longer."""
    loop = asyncio.get_running_loop()
    for _ in range(10):
        leasing = asyncio.create_task(one(holder))
        loop.call_soon(loop.call_soon, time.sleep, EACH_WAY_SECONDS)  # when the call has been sent
        lease = await leasing
        assert late(lease)
    assert not late(await one(holder))
