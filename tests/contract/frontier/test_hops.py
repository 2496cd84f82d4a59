"""What the frontier's contract promises of redirects inside a domain, on every topology."""

from gossamer.frontier.base import RedirectPermit
from gossamer.model.crawl import DomainPolicy
from gossamer.model.request import Outcome, Settlement

from .asking import a_batch, fingerprint
from .pair import Pair
from .test_politeness import PLAIN, fill


async def test_a_hop_is_a_hit(pair: Pair) -> None:
    await fill(pair)
    await pair.set_policy("a.test", DomainPolicy(hits=2, window_seconds=10.0, moderated=False, concurrency=9))
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease(worker, limit=1) or await pair.lease_all_due(worker)
    target = fingerprint("link", "https://a.test/target")
    assert await pair.hop(worker, lease, fingerprint=target, payload=b"1") is RedirectPermit.GRANTED
    assert await pair.lease_all_due(worker) == []
    await pair.check()


async def test_a_hop_without_a_free_hit_goes_back_to_the_front_with_its_chain(pair: Pair) -> None:
    await fill(pair)
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    target = fingerprint("link", "https://a.test/target")
    assert await pair.hop(worker, lease, fingerprint=target, payload=b"chain") is RedirectPermit.WAIT
    await pair.settle(worker, [Settlement(lease, Outcome.FORWARDED, payload=b"chain")])
    await pair.check()
    await pair.pass_time(1)
    (again,) = await pair.lease_all_due(worker)
    assert (again.url, again.payload, again.request_id) == (lease.url, b"chain", lease.request_id)
    late = await pair.add(pair.model.run_of(lease.run), PLAIN, [a_batch("a.test", ["target"])])
    assert late.duplicates == 1, "the target is this request's now"


async def test_a_hop_to_what_was_seen_ends_there(pair: Pair) -> None:
    await fill(pair)
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    await pair.pass_time(2)
    seen = fingerprint("link", "https://a.test/7")
    assert await pair.hop(worker, lease, fingerprint=seen, payload=b"chain") is RedirectPermit.SEEN
    assert len(await pair.lease_all_due(worker)) == 0, "one in flight at one hit a second"
    await pair.settle(worker, [Settlement(lease, Outcome.DROPPED, "duplicate")])
    assert len(await pair.lease_all_due(worker)) == 1, "no hit was charged"


async def test_a_dead_workers_chain_goes_on_with_its_heir(pair: Pair) -> None:
    await fill(pair, 1)
    worker = await pair.hire(pool="shared", spiders=["link"])
    (lease,) = await pair.lease_all_due(worker)
    await pair.pass_time(2)
    target = fingerprint("link", "https://a.test/target")
    assert await pair.hop(worker, lease, fingerprint=target, payload=b"chain") is RedirectPermit.GRANTED
    pair.kill(worker)
    await pair.pass_time(3 * pair.model.dead_after_seconds)
    await pair.reclaim()
    heir = await pair.hire(pool="shared", spiders=["link"])
    (again,) = await pair.lease_all_due(heir)
    assert (again.payload, again.attempt, again.request_id) == (b"chain", 1, lease.request_id)
    await pair.check()
