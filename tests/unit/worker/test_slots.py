"""Slots take leases as they come and are counted while they hold one."""

from typing import Any

from gossamer.model.crawl import Crawl, CrawlId, Run, Terms
from gossamer.model.request import Lease
from gossamer.worker.worker import WorkerSlots

RUN = Run(Crawl(id=CrawlId("cli", "x")), 1, 1)


def lease(number: int) -> Lease:
    values: dict[str, Any] = {
        "shard": 0,
        "worker": "w-1",
        "run": RUN,
        "spider": "link",
        "domain": "a.test",
        "priority": 1,
        "depth": 0,
    }
    values |= {"attempt": 0, "deaths": 0, "url": "http://a.test/", "payload": None, "terms": Terms()}
    return Lease(id=number, request_id="", identity=b"", charged=0.0, **values)


async def test_a_given_lease_counts_as_held_before_its_slot_comes_round() -> None:
    slots = WorkerSlots(2)
    taking = [slots.take() for _ in range(2)]
    assert await slots.wait_for_free() == 2
    slots.give([lease(1)])
    assert (slots.held, slots.free) == (1, 1)
    taken = await taking[0]
    assert taken.id == 1
    slots.done()
    await slots.wait_until_idle()
    assert slots.held == 0
    taking[1].cancel()


async def test_what_no_slot_took_can_be_had_back() -> None:
    slots = WorkerSlots(1)
    taking = slots.take()
    await slots.wait_for_free()
    slots.give([lease(1), lease(2)])
    assert [back.id for back in slots.take_back()] == [2]
    assert (await taking).id == 1
    assert slots.held == 1
