"""Members and servers that die, and groups that change: nothing confirmed is lost."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from gossamer.bus.base import Bus, Consumer
from gossamer.bus.kafka import KafkaBus
from gossamer.bus.kafka_consumer import KafkaConsumer
from gossamer.errors import BusUnavailable
from tests.servers.kafka import Broker, broker
from tests.servers.valkey import Server, standalone

from .opened import Place, opened
from .test_bus import take

_ROOT = Path(__file__).parents[3]
_ALL_REVOKED = {"partition.assignment.strategy": "range"}
"""With this strategy, all partitions are revoked when a member joins, also when the one that has them does."""


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


class _Slow:
    """librdkafka's consumer, whose next `consume` goes on until partitions are revoked."""

    def __init__(self, consumer: Any, is_revoked: threading.Event, on_consume: Callable[[], object]) -> None:
        self._consumer = consumer
        self._is_revoked = is_revoked
        self._on_consume = on_consume

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def consume(self, count: int, wait_seconds: float) -> list[Any]:
        self._on_consume()
        found: list[Any] = []
        while len(found) < count and not self._is_revoked.is_set():
            found += self._consumer.consume(1, 0.1)
        return found


@pytest.fixture
def revoked(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a consumer has lost partitions."""
    event = threading.Event()
    on_lost = KafkaConsumer._on_lost

    def noted(consumer: KafkaConsumer, *lost: Any) -> None:
        on_lost(consumer, *lost)
        event.set()

    monkeypatch.setattr(KafkaConsumer, "_on_lost", noted)
    return event


async def test_a_partition_that_is_revoked_during_a_read_keeps_what_is_in_hand(
    one_broker: Broker, revoked: threading.Event
) -> None:
    """The member has 0-9 in hand and reads on when another joins. The group still owes all of them."""
    reading, loop = asyncio.Event(), asyncio.get_running_loop()
    bus = KafkaBus(one_broker.servers, partitions=1, options=_ALL_REVOKED)
    await bus.publish("revoked", [b"%d" % n for n in range(20)])
    one = await bus.consume(["revoked"], group="revoked")
    assert isinstance(one, KafkaConsumer)
    assert len(await take(one, 10)) == 10
    revoked.clear()
    one._consumer = _Slow(one._consumer, revoked, lambda: loop.call_soon_threadsafe(reading.set))
    found: set[int] = set()

    async def read_on() -> None:
        await one.take(at_most=20, wait_seconds=60.0)
        await one.close()

    async def join() -> None:
        await reading.wait()
        two = await bus.consume(["revoked"], group="revoked")
        while not found or await two.lag():
            messages = await two.take(at_most=20, wait_seconds=0.1)
            found.update(int(message.value) for message in messages)
            await two.acknowledge(messages)
        await two.close()

    async with asyncio.timeout(60):
        await asyncio.gather(read_on(), join())
    assert found == set(range(20))
    await bus.close()


async def _deleted_and_made_again(one_broker: Broker, bus: KafkaBus, consumer: Consumer, topic: str) -> None:
    """Delete a topic, and take in vain until it is there again."""
    admin = AdminClient({"bootstrap.servers": one_broker.servers})
    admin.delete_topics([topic], operation_timeout=20)[topic].result(20)
    async with asyncio.timeout(60):
        while topic not in admin.list_topics(timeout=10).topics:
            assert await consumer.take(at_most=10, wait_seconds=0.1) == []
    await bus.close()


async def test_a_deleted_topic_is_made_again_also_when_its_partitions_are_revoked_during_the_read(
    one_broker: Broker, revoked: threading.Event
) -> None:
    """The error that says so names the partition 0, which is among the revoked ones."""
    bus = KafkaBus(one_broker.servers, partitions=1)
    one = await bus.consume(["deleted"], group="deleted")
    assert isinstance(one, KafkaConsumer)
    await bus.publish("deleted", [b"0"])
    await one.acknowledge(await take(one, 1))
    one._consumer = _Slow(one._consumer, revoked, lambda: None)
    await _deleted_and_made_again(one_broker, bus, one, "deleted")


async def test_a_deleted_topic_is_made_again_also_when_a_broker_knows_it_a_moment_longer(one_broker: Broker) -> None:
    """So it seems to be there at the first look. librdkafka does not report it again."""
    bus = KafkaBus(one_broker.servers, partitions=1)
    one = await bus.consume(["stale"], group="stale")
    assert isinstance(one, KafkaConsumer)
    await bus.publish("stale", [b"0"])
    await one.acknowledge(await take(one, 1))
    looks = 0

    async def create(topic: str) -> None:
        nonlocal looks
        looks += 1
        if looks > 1:
            await bus._ensure_again(topic)

    one._create = create
    await _deleted_and_made_again(one_broker, bus, one, "stale")


class _Refusing:
    """librdkafka's consumer, whose next commits fail with these errors."""

    def __init__(self, consumer: Any, errors: list[int]) -> None:
        self._consumer = consumer
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._consumer, name)

    def commit(self, **options: Any) -> Any:
        if self._errors:
            raise KafkaException(KafkaError(self._errors.pop(0)))
        return self._consumer.commit(**options)


async def test_messages_that_come_again_before_they_are_acknowledged_stop_no_member(one_broker: Broker) -> None:
    """A rebalance refuses the commit that they were taken; the partition comes back, they are read again, the broker
    is away, and they are acknowledged."""
    bus = KafkaBus(one_broker.servers, partitions=1, options=_ALL_REVOKED)
    await bus.publish("again", [b"%d" % n for n in range(10)])
    one = await bus.consume(["again"], group="again")
    assert isinstance(one, KafkaConsumer)
    errors = [KafkaError.REBALANCE_IN_PROGRESS]
    one._consumer = _Refusing(one._consumer, errors)
    held = await take(one, 10)
    assert not errors
    errors.append(KafkaError._TRANSPORT)
    await one.subscribe(["again"])  # the member joins again, and gets all partitions anew
    with pytest.raises(BusUnavailable):
        await take(one, 1)
    await one.acknowledge(held)
    await bus.publish("again", [b"10"])
    messages = [*await take(one, 10), *await take(one, 1)]
    await one.acknowledge(messages)
    assert messages[-1].value == b"10"
    assert await one.lag() == 0
    await one.close()
    await bus.close()


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
