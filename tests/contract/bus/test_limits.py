"""What a bus takes at its limits, and what it refuses."""

import asyncio
import os

import pytest

from gossamer.bus.base import Bus
from gossamer.errors import BadInput, MessageTooLarge

from .test_bus import take


@pytest.mark.parametrize("key", [b"", b"k" * 500], ids=["without-key", "with-key"])
async def test_the_largest_message_comes_whole_and_one_byte_more_is_refused(bus: Bus, key: bytes) -> None:
    largest = os.urandom(await bus.message_limit("pages"))
    with pytest.raises(MessageTooLarge):
        await bus.publish("pages", [b"small", largest + b"x"], keys=[key, key])
    await bus.publish("pages", [largest, b""], keys=[key, key])
    reader = await bus.read(["pages"], from_beginning=True)
    messages = await take(reader, 2)
    assert [message.value == sent for message, sent in zip(messages, (largest, b""), strict=True)] == [True, True]
    assert [message.key for message in messages] == [key, key]
    await reader.close()


async def test_nothing_is_published_of_nothing(bus: Bus) -> None:
    await bus.publish("pages", [])


@pytest.mark.parametrize("name", ["a b", "a/b", "{a}", "\u00e9", "a\n", "x" * 250])
async def test_what_is_no_name_of_a_topic_is_refused(bus: Bus, name: str) -> None:
    with pytest.raises(BadInput):
        await bus.publish(name, [b"1"])
    with pytest.raises(BadInput):
        await bus.consume([name], group="g")
    with pytest.raises(BadInput):
        await bus.read([name], from_beginning=True)


async def test_a_take_that_is_cancelled_anywhere_loses_nothing(bus: Bus) -> None:
    consumer = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"%d" % n for n in range(100)])
    found: list[bytes] = []
    for steps in range(40):
        taking = asyncio.create_task(consumer.take(at_most=2, wait_seconds=1.0))
        for _ in range(steps):
            await asyncio.sleep(0)
        taking.cancel()
        try:
            messages = await taking
        except asyncio.CancelledError:
            continue
        found += [message.value for message in messages]
        await consumer.acknowledge(messages)
    while len(found) < 100:
        messages = await take(consumer, 1)
        found += [message.value for message in messages]
        await consumer.acknowledge(messages)
    assert sorted(map(int, found)) == list(range(100))
    assert await consumer.lag() == 0
    await consumer.close()


async def test_a_publish_that_is_cancelled_anywhere_harms_no_other(bus: Bus) -> None:
    for steps in range(20):
        publishing = asyncio.create_task(bus.publish("pages", [b"maybe"]))
        for _ in range(steps):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(publishing, bus.publish("pages", [b"%d" % steps]), return_exceptions=True)
    await bus.publish("pages", [b"last"])
    reader = await bus.read(["pages"], from_beginning=True)
    found: set[bytes] = set()
    async with asyncio.timeout(60):
        while b"last" not in found:
            found |= {message.value for message in await take(reader, 1)}
    assert found - {b"maybe"} == {b"last", *(b"%d" % n for n in range(20))}
    await reader.close()
