"""What every bus promises."""

import asyncio
from dataclasses import replace

import pytest

from gossamer.bus.base import Bus, Consumer, Message, Reader
from gossamer.errors import BadInput, MessageTooLarge

from .opened import Place, opened


async def take(consumer: Consumer, count: int) -> list[Message]:
    """So many messages, however they are parcelled."""
    found: list[Message] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await consumer.take(at_most=count - len(found), wait_seconds=1.0)
    return found


async def test_what_is_published_is_taken_in_order(bus: Bus) -> None:
    consumer = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"%d" % n for n in range(1500)], keys=[b"k"] * 1500)
    messages = await take(consumer, 1500)
    assert [message.value for message in messages] == [b"%d" % n for n in range(1500)]
    assert {(message.topic, message.key) for message in messages} == {("in", b"k")}
    await consumer.close()


async def test_a_new_group_begins_with_the_oldest(bus: Bus) -> None:
    await bus.publish("pages", [b"1"])
    consumer = await bus.consume(["pages"], group="late")
    assert [message.value for message in await take(consumer, 1)] == [b"1"]
    await consumer.close()


async def test_members_of_a_group_share_and_groups_do_not(bus: Bus) -> None:
    one, two = await bus.consume(["pages"], group="g"), await bus.consume(["pages"], group="g")
    other = await bus.consume(["pages"], group="h")
    await bus.publish("pages", [b"%d" % n for n in range(10)])
    mine: list[Message] = []
    async with asyncio.timeout(60):
        while len(mine) < 10:
            mine += await one.take(at_most=3, wait_seconds=0.1)
            mine += await two.take(at_most=3, wait_seconds=0.1)
    assert sorted(int(message.value) for message in mine) == list(range(10))
    assert len(await take(other, 10)) == 10
    for consumer in (one, two, other):
        await consumer.close()


async def test_what_a_member_leaves_unacknowledged_another_gets(bus: Bus) -> None:
    one = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"1", b"2", b"3"])
    messages = await take(one, 3)
    await one.acknowledge(messages[:1])
    await one.close()
    two = await bus.consume(["in"], group="g")
    again = await take(two, 2)
    assert sorted(message.value for message in again) == [b"2", b"3"]
    assert await two.lag() == 2
    await two.acknowledge(again)
    assert await two.lag() == 0
    await two.close()


async def test_messages_are_acknowledged_in_any_order(bus: Bus) -> None:
    one = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"1", b"2", b"3"])
    messages = await take(one, 3)
    await one.acknowledge(messages[2:])
    await one.acknowledge(messages[:1])
    await one.acknowledge(messages[1:])
    assert await one.lag() == 0
    await one.close()


async def test_acknowledged_messages_do_not_come_again(bus: Bus) -> None:
    one = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"1", b"2"])
    await one.acknowledge(await take(one, 2))
    await one.close()
    two = await bus.consume(["in"], group="g")
    await bus.publish("in", [b"3"])
    assert [message.value for message in await take(two, 1)] == [b"3"]
    await two.close()


async def test_an_idle_consumer_is_woken_by_a_message(bus: Bus) -> None:
    consumer = await bus.consume(["in"], group="g")
    waiting = asyncio.create_task(consumer.take(at_most=5, wait_seconds=60.0))
    await asyncio.sleep(0)
    await bus.publish("in", [b"1"])
    async with asyncio.timeout(30):
        assert [message.value for message in await waiting] == [b"1"]
    await consumer.close()


async def test_readers_see_all_or_what_is_new(bus: Bus) -> None:
    await bus.publish("pages", [b"old"])
    everything = await bus.read(["pages"], from_beginning=True)
    fresh = await bus.read(["pages"], from_beginning=False)
    await bus.publish("pages", [b"new"])
    assert [message.value for message in await take(everything, 2)] == [b"old", b"new"]
    assert [message.value for message in await take(fresh, 1)] == [b"new"]
    await everything.close()
    await fresh.close()


async def test_publishers_side_by_side_lose_nothing(bus: Bus) -> None:
    await asyncio.gather(*(bus.publish("pages", [b"%d" % n]) for n in range(200)))
    reader = await bus.read(["pages"], from_beginning=True)
    assert sorted(int(message.value) for message in await take(reader, 200)) == list(range(200))
    await reader.close()


async def test_topics_are_listed(bus: Bus) -> None:
    await bus.publish("pages", [b"1", b"2"])
    await bus.publish("other", [b"1"])
    assert [(topic.name, topic.messages) for topic in await bus.topics()] == [("other", 1), ("pages", 2)]


async def test_topics_are_listed_by_pages(bus: Bus) -> None:
    for topic in ("d", "a", "c", "b", "e"):
        await bus.publish(topic, [topic.encode()] * 2)
    assert [(topic.name, topic.messages) for topic in await bus.topics(limit=2)] == [("a", 2), ("b", 2)]
    assert [topic.name for topic in await bus.topics(after="b", limit=2)] == ["c", "d"]
    assert [topic.name for topic in await bus.topics(after="d", limit=2)] == ["e"]
    assert await bus.topics(after="e", limit=2) == []


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_topic_is_read_from_its_newest_message_to_its_oldest(place: Place, partitions: int) -> None:
    """Each message once, whatever the pages; what is published meanwhile comes on none of them."""
    async with opened(place, partitions=partitions) as bus:
        for n in range(40):
            await bus.publish("pages", [b"%d" % n], keys=[b"%d" % n])
        found: list[bytes] = []
        cursor, is_at_end = "", False
        while not is_at_end:
            reader = await bus.read_back("pages", before=cursor)
            messages = await reader.take(at_most=7, wait_seconds=0)
            is_at_end = reader.is_at_end()
            if len(messages) == 7:  # the last two are not wanted yet
                messages, is_at_end = messages[:5], False
            await reader.acknowledge(messages)
            found += [message.value for message in messages]
            cursor = reader.cursor()
            await reader.close()
            await bus.publish("pages", [b"new"], keys=[b"new"])
        assert sorted(found) == sorted(b"%d" % n for n in range(40))
        if partitions == 1 or place.kind == "streams":
            assert found == [b"%d" % n for n in range(39, -1, -1)]
        reader = await bus.read_back("pages")
        assert [message.value for message in await reader.take(at_most=1, wait_seconds=0)] == [b"new"]
        assert len(await reader.take(at_most=1000, wait_seconds=0)) > 40
        assert reader.is_at_end()
        await reader.close()


async def test_a_topic_without_messages_is_read_back(bus: Bus) -> None:
    reader = await bus.read_back("pages")
    assert await reader.take(at_most=10, wait_seconds=0) == []
    assert reader.is_at_end()
    await reader.close()
    reader = await bus.read_back("pages", before=reader.cursor())
    assert await reader.take(at_most=10, wait_seconds=0) == []
    await reader.close()
    with pytest.raises(BadInput):
        await bus.read_back("pages", before="x")


async def test_a_topic_is_read_from_a_time_on(bus: Bus) -> None:
    await bus.publish("pages", [b"old"])
    reader = await bus.read(["pages"], from_beginning=True)
    [old] = await take(reader, 1)
    await reader.close()
    published = old.published
    while published <= old.published:  # the clock of the bus has milliseconds
        await bus.publish("pages", [b"new"])
        reader = await bus.read_back("pages")
        [newest] = await reader.take(at_most=1, wait_seconds=0)
        published = newest.published
        await reader.close()
    reader = await bus.read(["pages"], from_beginning=True, since=published)
    assert {message.value for message in await take(reader, 1)} == {b"new"}
    await reader.close()
    reader = await bus.read(["pages"], from_beginning=True, since=published + 60)
    assert await reader.take(at_most=1, wait_seconds=0.5) == []
    assert reader.is_at_end()
    await reader.close()


async def test_topics_of_another_prefix_are_not_listed(place: Place) -> None:
    async with opened(place) as ours, opened(replace(place, prefix=f"else-{place.prefix}")) as theirs:
        await ours.publish("pages", [b"1"])
        await theirs.publish("others", [b"1"])
        assert [topic.name for topic in await ours.topics()] == ["pages"]
        assert [topic.name for topic in await theirs.topics()] == ["others"]


async def test_it_says_which_topics_are_there_and_makes_none(bus: Bus) -> None:
    asked = ["pages", "in", "other", "none"]
    assert await bus.existing(asked) == set()
    await bus.publish("pages", [b"1"])
    consumer = await bus.consume(["in"], group="g")
    reader = await bus.read(["other"], from_beginning=False)
    assert await bus.existing(asked) == {"pages", "in", "other"}
    assert await bus.existing(["pages"]) == {"pages"}
    assert "none" not in {topic.name for topic in await bus.topics()}
    await consumer.close()
    await reader.close()


async def test_what_is_too_large_is_refused(bus: Bus) -> None:
    with pytest.raises(MessageTooLarge):
        await bus.publish("pages", [b"x" * (await bus.message_limit("pages") + 1)])


async def test_the_bus_answers(bus: Bus) -> None:
    await bus.ping()


async def _all_of(reader: Reader, *, at_most: int = 100) -> list[bytes]:
    """Everything up to the end, acknowledged."""
    found: list[bytes] = []
    async with asyncio.timeout(60):
        while len(found) < at_most:
            messages = await reader.take(at_most=at_most - len(found), wait_seconds=0.2)
            await reader.acknowledge(messages)
            found += [message.value for message in messages]
            if reader.is_at_end():
                break
    return found


async def test_a_reader_goes_on_where_another_stood(bus: Bus) -> None:
    """Behind what it acknowledged, whatever it had taken beyond; at the end it goes on with what came since."""
    values = [b"%d" % n for n in range(10)]
    await bus.publish("pages", values)
    first = await bus.read(["pages"], from_beginning=True)
    assert await _all_of(first, at_most=4) == values[:4]
    async with asyncio.timeout(60):
        while not await first.take(at_most=3, wait_seconds=1):
            pass
    cursor = first.cursor()
    await first.close()
    second = await bus.read(["pages"], from_beginning=True, after=cursor)
    assert await _all_of(second) == values[4:]
    cursor = second.cursor()
    await second.close()
    await bus.publish("pages", [b"new"])
    third = await bus.read(["pages"], from_beginning=False, after=cursor)
    assert await _all_of(third) == [b"new"]
    await third.close()


async def test_a_reader_of_nothing_is_at_the_end(bus: Bus) -> None:
    reader = await bus.read(["pages"], from_beginning=True)
    assert await _all_of(reader) == []
    again = await bus.read(["pages"], from_beginning=True, after=reader.cursor())
    assert await _all_of(again) == []
    await reader.close()
    await again.close()


@pytest.mark.parametrize("cursor", ["x", "[]", "{}x", '{"pages": "a"}', '{"pages": {"0": -1}}', '{"pages": [1]}'])
async def test_an_invalid_cursor_is_refused(bus: Bus, cursor: str) -> None:
    with pytest.raises(BadInput):
        await bus.read(["pages"], from_beginning=True, after=cursor)
