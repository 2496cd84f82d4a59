"""What only Streams have to promise: bounds, and the end of every key."""

import pytest

from gossamer.bus.streams import StreamsBus
from gossamer.errors import BusFull
from gossamer.valkey.shards import Shards
from tests.servers.valkey import Server

from .test_bus import take


@pytest.fixture
async def shards(one_server: Server):  # type: ignore[no-untyped-def]
    one_server.command("FLUSHALL")
    connected = await Shards.connect(one_server.address)
    yield connected
    await connected.close()


async def test_a_topic_of_requests_refuses_what_it_cannot_keep_until_some_are_acknowledged(shards: Shards) -> None:
    bus = StreamsBus(shards, kept=("in",), most_bytes=100_000)

    async def fill() -> None:
        for _ in range(1000):
            await bus.publish("in", [b"x" * 1000])

    with pytest.raises(BusFull):
        await fill()
    [topic] = await bus.topics()
    assert 80 <= topic.messages <= 110
    consumer = await bus.consume(["in"], group="g")
    await consumer.acknowledge(await take(consumer, topic.messages))
    assert (await bus.topics())[0].messages == 0
    await bus.publish("in", [b"x" * 1000])
    await consumer.close()


async def test_requests_stay_until_every_group_has_acknowledged_them(shards: Shards) -> None:
    bus = StreamsBus(shards, kept=("in",))
    one, two = await bus.consume(["in"], group="g"), await bus.consume(["in"], group="h")
    await bus.publish("in", [b"1", b"2"])
    await one.acknowledge(await take(one, 2))
    assert (await bus.topics())[0].messages == 2
    messages = await take(two, 2)
    await two.acknowledge(messages[:1])
    assert (await bus.topics())[0].messages == 1
    await two.acknowledge(messages[1:])
    assert (await bus.topics())[0].messages == 0
    await one.close()
    await two.close()


async def test_of_pages_the_oldest_go_and_what_nobody_read_is_counted(shards: Shards) -> None:
    bus = StreamsBus(shards, most_bytes=1_000_000)
    consumer = await bus.consume(["pages"], group="slow")
    for _ in range(30):
        await bus.publish("pages", [b"x" * 1000] * 100)
    [topic] = await bus.topics()
    assert topic.messages < 1200
    assert bus.trimmed["pages"] + topic.messages >= 2900
    await consumer.close()


async def test_every_key_ends_but_requests_that_wait(shards: Shards) -> None:
    bus = StreamsBus(shards, kept=("in",))
    consumer = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"1"])
    await bus.publish("pages", [b"1"])
    endless = [key for key in await shards.command("x", "KEYS", "*") if await shards.command("x", "TTL", key) < 0]
    assert sorted(endless) == [b"{gossamer:bus:in}", b"{gossamer:bus:in}:facts"]
    await consumer.acknowledge(await take(consumer, 1))
    for key in await shards.command("x", "KEYS", "*"):
        assert await shards.command("x", "TTL", key) > 0
    await consumer.close()
