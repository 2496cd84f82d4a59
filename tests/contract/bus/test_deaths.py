"""Members and servers that die, and groups that change: nothing confirmed is lost."""

import asyncio
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gossamer.bus.base import Bus, Consumer
from gossamer.errors import BusUnavailable
from tests.servers.kafka import Broker, broker
from tests.servers.valkey import Server, standalone

from .opened import Place, opened
from .test_bus import take

_ROOT = Path(__file__).parents[3]


async def test_what_a_killed_process_had_taken_another_gets(bus: Bus, place: Place) -> None:
    """And learns that it may have been processed; of what nobody had taken it learns that it was not."""
    await bus.publish("in", [b"%d" % n for n in range(20)])
    doomed = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.contract.bus.doomed", place.kind, place.address, place.prefix, "10",
        stdout=asyncio.subprocess.PIPE, cwd=_ROOT,
    )  # fmt: skip
    try:
        assert doomed.stdout is not None
        async with asyncio.timeout(60):
            assert await doomed.stdout.readline() == b"taken\n"
    finally:
        doomed.send_signal(signal.SIGKILL)
        await doomed.wait()
    heir = await bus.consume(["in"], group="g")
    found: set[int] = set()
    redelivered: set[int] = set()
    async with asyncio.timeout(60):
        while len(found) < 20:
            messages = await heir.take(at_most=20, wait_seconds=1.0)
            await heir.acknowledge(messages)
            found |= {int(message.value) for message in messages}
            redelivered |= {int(message.value) for message in messages if message.redelivered}
    assert found == set(range(20))
    assert redelivered == set(range(10))
    assert await heir.lag() == 0
    await heir.close()


async def test_a_member_that_joins_in_mid_stream_costs_nothing(place: Place) -> None:
    """What the first holds and acknowledges when some of it is the other's by then does no harm."""
    async with opened(place, partitions=4) as bus:
        one = await bus.consume(["in"], group="g")
        await bus.publish("in", [b"%d" % n for n in range(400)], keys=[b"%d" % n for n in range(400)])
        held = await take(one, 50)
        two = await bus.consume(["in"], group="g")
        found = {int(message.value) for message in held}
        shared: set[int] = set()

        async def work(member: Consumer) -> None:
            """As a process of its own: in a rebalance, members wait for each other."""
            while len(found) < 400 or not shared:
                messages = await member.take(at_most=10, wait_seconds=0.05)
                found.update(int(message.value) for message in messages)
                if member is two:
                    shared.update(int(message.value) for message in messages)
                await member.acknowledge(messages)
                if not shared and len(found) == 400:  # all was read before the other had joined
                    await bus.publish("in", [b"%d" % n for n in range(400)], keys=[b"%d" % n for n in range(400)])

        async def finish(member: Consumer) -> None:
            while await one.lag() + await two.lag():
                await member.acknowledge(await member.take(at_most=100, wait_seconds=0.05))

        async with asyncio.timeout(60):
            await asyncio.gather(work(one), work(two))
        await one.acknowledge(held)
        async with asyncio.timeout(60):
            await asyncio.gather(finish(one), finish(two))
        assert found == set(range(400))
        await one.close()
        await two.close()


@pytest.fixture(params=["streams", "kafka"])
def mortal(request: pytest.FixtureRequest) -> Iterator[tuple[Place, Server | Broker]]:
    """A bus whose server may be killed and started again."""
    if request.param == "kafka":
        with broker() as running:
            yield Place("kafka", running.servers, "m."), running
        return
    with standalone(options={"appendonly": "yes"}) as server:
        yield Place("streams", server.address, "m"), server


async def test_what_was_confirmed_outlives_the_server_and_publishing_goes_on(
    mortal: tuple[Place, Server | Broker],
) -> None:
    place, server = mortal
    confirmed: list[int] = []
    seen: set[int] = set()
    in_the_middle = asyncio.Event()

    async def publish(bus: Bus, until: int) -> None:
        while len(confirmed) < until:
            try:
                await bus.publish("in", [b"%d" % len(confirmed)])
            except BusUnavailable:
                continue
            confirmed.append(len(confirmed))
            if len(confirmed) == 70:
                in_the_middle.set()

    async def consume(consumer: Consumer, until: int) -> None:
        while len(seen) < until:
            try:
                messages = await consumer.take(at_most=10, wait_seconds=0.5)
                seen.update(int(message.value) for message in messages)
                await consumer.acknowledge(messages)
            except BusUnavailable:
                continue

    async with opened(place) as bus, asyncio.timeout(90):
        consumer = await bus.consume(["in"], group="g")
        await asyncio.gather(publish(bus, 50), consume(consumer, 30))
        both = asyncio.gather(publish(bus, 150), consume(consumer, 150))
        await in_the_middle.wait()
        server.kill()
        await asyncio.to_thread(server.start)
        await both
        assert seen == set(range(150))
        await consumer.close()
